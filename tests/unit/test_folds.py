"""The official folds: both files say the same, and a pickle is read without being run."""

from __future__ import annotations

import copyreg
import json
import os
import pickle
import pickletools
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subtext.data.folder import AUTHORS_FOLDS_FILE, FOLDS_FILE
from subtext.data.folds import read_folds
from subtext.errors import DataError

MUSTARD = Path(__file__).resolve().parents[3] / "shared" / "mustard"
CLIPS = {f"1_{index}": {} for index in range(10)}
PARTS = [[0, 7], [1, 6], [2, 9], [3, 8], [4, 5]]
needs_mustard = pytest.mark.skipif(
    not MUSTARD.is_dir(), reason="MUStARD is not beside the checkout"
)


def folds_of(parts: list[list[int]] = PARTS, n: int = 10) -> list[tuple[list[int], list[int]]]:
    return [([i for i in range(n) if i not in part], part) for part in parts]


def as_json(folds: list[tuple[list[int], list[int]]]) -> list[dict[str, list[str]]]:
    ids = list(CLIPS)
    return [{"train": [ids[i] for i in a], "test": [ids[i] for i in b]} for a, b in folds]


def text_2(raw: bytes) -> bytes:
    """A str as Python 2 pickles it."""
    if len(raw) < 256:
        return pickle.SHORT_BINSTRING + bytes([len(raw)]) + raw
    return pickle.BINSTRING + struct.pack("<i", len(raw)) + raw


def array_2(positions: list[int], shape: int | None = None, kind: bytes = b"i8") -> bytes:
    """An int64 array as Python 2's numpy pickles it, without a memo."""
    n = len(positions) if shape is None else shape
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
        + text_2(b"b") + b"\x87R(K\x01J" + struct.pack("<i", n)
        + b"\x85cnumpy\ndtype\n" + text_2(kind) + b"K\x00K\x01\x87R"
        b"(K\x03" + text_2(b"<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89" + text_2(struct.pack(f"<{len(positions)}q", *positions)) + b"tb"
    )  # fmt: skip


def pickle_2(folds: list[tuple[list[int], list[int]]]) -> bytes:
    pairs = b"".join(array_2(train) + array_2(test) + b"\x86" for train, test in folds)
    return b"\x80\x02](" + pairs + b"e."


def write_pickle(root: Path, content: bytes) -> Path:
    (root / AUTHORS_FOLDS_FILE).write_bytes(content)
    return root


@needs_mustard
def test_the_official_folds_of_mustard() -> None:
    clips = json.loads((MUSTARD / "sarcasm_data.json").read_text())
    folds = read_folds(MUSTARD, clips)
    assert [(len(fold.train), len(fold.test)) for fold in folds] == [(552, 138)] * 5
    sarcastic = [sum(clips[clip_id]["sarcasm"] for clip_id in fold.test) for fold in folds]
    assert sarcastic == [74, 71, 63, 76, 61]


@needs_mustard
def test_positions_of_the_real_clips_give_the_same_folds_as_their_ids(tmp_path: Path) -> None:
    clips = json.loads((MUSTARD / "sarcasm_data.json").read_text())
    expected = read_folds(MUSTARD, clips)
    place = {clip_id: index for index, clip_id in enumerate(clips)}
    positions = [([place[i] for i in f.train], [place[i] for i in f.test]) for f in expected]
    assert read_folds(write_pickle(tmp_path, pickle_2(positions)), clips) == expected


def test_both_files_give_the_same_folds_and_json_comes_first(tmp_path: Path) -> None:
    write_pickle(tmp_path, pickle_2(folds_of()))
    from_pickle = read_folds(tmp_path, CLIPS)
    (tmp_path / FOLDS_FILE).write_text(json.dumps(as_json(folds_of())))
    assert read_folds(tmp_path, CLIPS) == from_pickle
    write_pickle(tmp_path, b"never read")
    assert read_folds(tmp_path, CLIPS) == from_pickle


@pytest.mark.parametrize("protocol", [3, 4])
def test_arrays_that_a_newer_numpy_saved_are_read_too(protocol: int, tmp_path: Path) -> None:
    arrays = [(np.array(train), np.array(test)) for train, test in folds_of()]
    write_pickle(tmp_path, pickle.dumps(arrays, protocol=protocol))
    assert read_folds(tmp_path, CLIPS)[4].test == ["1_4", "1_5"]


def test_without_either_file_the_message_names_both(tmp_path: Path) -> None:
    names = rf"{FOLDS_FILE}.*{AUTHORS_FOLDS_FILE}.*soujanyaporia/MUStARD"
    with pytest.raises(DataError, match=names):
        read_folds(tmp_path, CLIPS)


AT_ODDS = [
    pytest.param(folds_of(PARTS[:4]), "is not 5 folds", id="four-folds"),
    pytest.param(
        [*folds_of()[:4], ([0, 1, 2, 3, 6, 7, 8], [4, 5])], "leaves out", id="a-clip-is-missing"
    ),
    pytest.param(
        [*folds_of()[:4], ([0, 1, 2, 3, 4, 6, 7, 8, 9], [4, 5])], "more than once",
        id="a-clip-is-on-both-sides",
    ),
    pytest.param(folds_of([*PARTS[:4], [0, 5]]), "tested by more than one", id="tested-twice"),
    pytest.param(folds_of([*PARTS[:4], []]), "holds no clip", id="nothing-to-test"),
]  # fmt: skip


@pytest.mark.parametrize(("folds", "said"), AT_ODDS)
@pytest.mark.parametrize("file", [FOLDS_FILE, AUTHORS_FOLDS_FILE])
def test_folds_that_do_not_fit_the_clips_are_refused(
    folds: list[tuple[list[int], list[int]]], said: str, file: str, tmp_path: Path
) -> None:
    if file == FOLDS_FILE:
        (tmp_path / FOLDS_FILE).write_text(json.dumps(as_json(folds)))
    else:
        write_pickle(tmp_path, pickle_2(folds))
        said = f"{said}|no list of 5 folds"
    with pytest.raises(DataError, match=said) as caught:
        read_folds(tmp_path, CLIPS)
    assert all(problem.remedy for problem in caught.value.problems)


def test_an_unknown_clip_is_named(tmp_path: Path) -> None:
    content = as_json(folds_of())
    content[2]["test"].append("9_9")
    (tmp_path / FOLDS_FILE).write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"folds\[2\] = \['9_9'\]: are not in sarcasm_data"):
        read_folds(tmp_path, CLIPS)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("", "not JSON", id="empty"),
        pytest.param("{}", "is no list of folds", id="no list"),
        pytest.param("[1, 2, 3, 4, 5]", r"folds\[0\]\.train", id="no objects"),
        pytest.param('[{"train": ["1_1"]}]', r"folds\[0\]\.test = None", id="no test"),
        pytest.param('[{"train": "1_1", "test": [1]}]', "is no list of ids", id="no ids"),
        pytest.param("[[]" * 3000, "not JSON|nested", id="torn"),
    ],
)
def test_a_json_file_of_another_shape_is_refused(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / FOLDS_FILE).write_text(content)
    with pytest.raises(DataError, match=said):
        read_folds(tmp_path, CLIPS)


class Runs:
    def __init__(self, call: Any, *arguments: Any) -> None:
        self.reduced = call, arguments

    def __reduce__(self) -> Any:
        return self.reduced


def nested_tuples(depth: int) -> bytes:
    """((), ()) of tuples, doubled `depth` times: hashing or printing it never ends."""
    return b"\x80\x02)q\x00" + b"".join(b"h\x00h\x00\x86q\x00" for _ in range(depth))


MALICIOUS = [
    pytest.param(pickle.dumps(Runs(os.system, "touch effect")), "system", id="os.system"),
    pytest.param(pickle.dumps(Runs(eval, "open('effect','w')"), 2), r"\.eval", id="eval"),
    pytest.param(
        pickle.dumps([Runs(os.mkdir, "effect")] * 5, 0), "mkdir|UNICODE", id="text-protocol"
    ),
    pytest.param(b"cos\nsystem\n(S'touch effect'\ntR.", r"os\.system", id="by-hand"),
    pytest.param(b"(S'touch effect'\nios\nsystem\n.", "INST", id="INST"),
    pytest.param(b"(cos\nsystem\nS'touch effect'\no.", "OBJ", id="OBJ"),
    pytest.param(pickle.dumps(copyreg._reconstructor, 2), "copyreg|copy_reg", id="copyreg"),
    pytest.param(b"\x80\x02cnumpy\nfromfile\n.", r"numpy\.fromfile", id="another-name-of-numpy"),
    pytest.param(b"\x80\x02cnumpy.core.multiarray\nfrombuffer\n.", "frombuffer", id="frombuffer"),
    pytest.param(
        b"\x80\x04\x8c\x05numpy\x8c\x18ctypeslib.ctypes._dlopen\x93.", "_dlopen", id="dotted-name"
    ),
    pytest.param(b"\x80\x02\x82\x01.", "EXT1", id="extension-registry"),
    pytest.param(b"\x80\x02X\x01\x00\x00\x00aQ.", "BINPERSID", id="persistent-id"),
    pytest.param(b"\x80\x02Nr\xff\xff\xff\x7f.", "numbers an object", id="memo-bomb"),
    pytest.param(b"\x80\x02Np999999999\n.", "numbers an object", id="memo-bomb-in-text"),
    pytest.param(b"\x80\x02T\xff\xff\xff\x7f.", "expected|not enough", id="huge-text"),
    pytest.param(b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f.", ".", id="huge-bytes"),
    pytest.param(b"\x80\x05\x96" + b"\xff" * 7 + b"\x7f.", ".", id="huge-bytearray"),
    pytest.param(b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f.", ".", id="huge-frame"),
    pytest.param(nested_tuples(60) + b"}h\x00Ns.", "EMPTY_DICT", id="endless-hash"),
    pytest.param(nested_tuples(60) + b".", "no list of 5 folds", id="endless-print"),
    pytest.param(b"\x80\x02]" + b"cnumpy\nndarray\n)\x81a.", "NEWOBJ", id="NEWOBJ"),
    pytest.param(b"\x80\x02NNb.", ".", id="state-of-nothing"),
    pytest.param(b"\x80\x02NNR.", ".", id="call-of-nothing"),
]


@pytest.mark.parametrize(("content", "said"), MALICIOUS)
def test_a_malicious_pickle_is_refused_without_effect(
    content: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tracemalloc.start()
    with pytest.raises(DataError, match=said) as caught:
        read_folds(write_pickle(tmp_path, content), CLIPS)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [path.name for path in tmp_path.iterdir()] == [AUTHORS_FOLDS_FILE]
    assert peak_bytes < 20_000_000
    (problem,) = caught.value.problems
    assert FOLDS_FILE in problem.remedy


ONE = b"\x80\x02]("
REST = b"".join(array_2(a) + array_2(b) + b"\x86" for a, b in folds_of()[1:]) + b"e."


@pytest.mark.parametrize(
    ("first_fold", "said"),
    [
        pytest.param(array_2([1, 10]) + array_2([0]) + b"\x86", "outside 0 to 9", id="position"),
        pytest.param(array_2([1, -1]) + array_2([0]) + b"\x86", "outside 0 to 9", id="negative"),
        pytest.param(array_2([1], 2**31 - 1) + array_2([0]) + b"\x86", "its shape", id="shape"),
        pytest.param(array_2([1], -1) + array_2([0]) + b"\x86", "its shape", id="shape below 0"),
        pytest.param(array_2([1], kind=b"O8") + array_2([0]) + b"\x86", "int64", id="objects"),
        pytest.param(array_2([1]) + b"\x85", "no pair", id="one side"),
        pytest.param(array_2([1]) + b"]\x86", "other than two arrays", id="a list"),
        pytest.param(b"cnumpy\nndarray\ncnumpy\nndarray\n\x86", "two arrays", id="classes"),
        pytest.param(b"cnumpy\nndarray\n)R" * 2 + b"\x86", "not enough values", id="empty"),
    ],
)
def test_arrays_that_are_no_positions_are_refused(
    first_fold: bytes, said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=said):
        read_folds(write_pickle(tmp_path, ONE + first_fold + REST), CLIPS)


def test_a_file_too_large_to_be_positions_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / AUTHORS_FOLDS_FILE).open("wb") as stream:
        stream.truncate(1_500_000)
    with pytest.raises(DataError, match="1500000 bytes"):
        read_folds(tmp_path, CLIPS)


def test_the_forged_file_has_the_opcodes_of_the_authors() -> None:
    names = {opcode.name for opcode, _, _ in pickletools.genops(pickle_2(folds_of()))}
    assert {"GLOBAL", "REDUCE", "BUILD", "SHORT_BINSTRING", "APPENDS", "TUPLE2"} <= names


@settings(max_examples=200, deadline=None)
@given(cut=st.integers(0, 2000), at=st.integers(0, 2000), byte=st.integers(0, 255))
def test_a_torn_or_altered_pickle_is_refused_or_still_fits(
    cut: int, at: int, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(pickle_2(folds_of()))
    content[at % len(content)] = byte
    root = tmp_path_factory.mktemp("folds")
    write_pickle(root, bytes(content[: len(content) - cut % 50]))
    try:
        folds = read_folds(root, CLIPS)
    except DataError as error:
        assert error.problems
    else:
        assert all(sorted([*fold.train, *fold.test]) == sorted(CLIPS) for fold in folds)
