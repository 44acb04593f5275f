"""Reading the clips: real data loads, and every problem in a file is named, all at once."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.corpus import write_corpus

from subtext.data.folder import data_root, resolve_data_root
from subtext.data.scenarios import data_digest, load_clips, load_scenarios
from subtext.errors import DataError, Problem

MUSTARD = Path(__file__).resolve().parents[3] / "shared" / "mustard"
FIRST = "1_100"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


def edit(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def refused(root: Path) -> tuple[Problem, ...]:
    with pytest.raises(DataError) as caught:
        load_scenarios(root)
    return caught.value.problems


def test_a_clip_carries_its_lines_its_prosody_and_the_pivot_mark(root: Path) -> None:
    (root / "pivot_set.json").write_text(json.dumps({"clips": {FIRST: {"score": 0.2}}, "seed": 1}))
    scenarios = load_scenarios(root)
    raw = json.loads((root / "sarcasm_data.json").read_text())
    records = json.loads((root / "prosody.json").read_text())["clips"]
    assert list(scenarios) == list(raw)
    assert scenarios[FIRST] == {**raw[FIRST], "prosody": records[FIRST], "is_pivot": True}
    assert [clip_id for clip_id, clip in scenarios.items() if clip["is_pivot"]] == [FIRST]
    without = [clip_id for clip_id, clip in scenarios.items() if clip["prosody"] is None]
    assert set(without) == raw.keys() - records.keys()
    assert len(without) == 5


def test_clips_without_any_prosody_file_are_kept(tmp_path: Path) -> None:
    scenarios = load_scenarios(write_corpus(tmp_path, with_prosody=False))
    assert len(scenarios) == 40
    assert all(clip["prosody"] is None for clip in scenarios.values())


def test_the_log_counts_every_clip(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "subtext.data.scenarios")
    load_scenarios(root)
    assert "40 clips" in caplog.text
    assert "35 with prosody, 5 without" in caplog.text


def test_the_generated_corpus_is_the_same_each_time_and_balanced(tmp_path: Path) -> None:
    first, second = write_corpus(tmp_path / "a"), write_corpus(tmp_path / "b")
    for name in ("sarcasm_data.json", "prosody.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    clips = load_scenarios(first).values()
    assert Counter(clip["sarcasm"] for clip in clips) == {True: 20, False: 20}
    assert len({clip["show"] for clip in clips}) == 3


@pytest.mark.skipif(not MUSTARD.is_dir(), reason="the real MUStARD data is not beside the checkout")
def test_the_real_data_loads(tmp_path: Path) -> None:
    shutil.copy(MUSTARD / "sarcasm_data.json", tmp_path)
    scenarios = load_scenarios(tmp_path)
    assert Counter(clip["sarcasm"] for clip in scenarios.values()) == {True: 345, False: 345}
    assert next(iter(scenarios)) == "1_60"


CLIP_CASES: list[tuple[str, str, Any, str]] = [
    ("utterance of the wrong type", "utterance", 7, "utterance"),
    ("empty utterance", "utterance", "", "utterance"),
    ("utterance of white space", "utterance", " \n\t", "utterance"),
    ("control character", "utterance", "a\x00b", "utterance"),
    ("speaker null", "speaker", None, "speaker"),
    ("show empty", "show", "", "show"),
    ("context a string", "context", "one line", "context"),
    ("context entry of the wrong type", "context", [1], "context[0]"),
    ("context entry empty", "context", ["fine", " "], "context[1]"),
    ("fewer speakers than lines", "context_speakers", [], "context_speakers"),
    ("label a number", "sarcasm", 1, "sarcasm"),
    ("label a string", "sarcasm", "true", "sarcasm"),
    ("label null", "sarcasm", None, "sarcasm"),
    ("unknown field", "utterence", "x", "utterence"),
]


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [case[1:] for case in CLIP_CASES],
    ids=[case[0] for case in CLIP_CASES],
)
def test_a_bad_clip_is_named(root: Path, field: str, value: Any, named: str) -> None:
    edit(root / "sarcasm_data.json", lambda clips: clips[FIRST].update({field: value}))
    problems = {problem.field: problem for problem in refused(root)}
    assert problems[named].where == f"sarcasm_data.json, clip {FIRST}"
    assert problems[named].remedy


@pytest.mark.parametrize(
    "field", ["utterance", "speaker", "context", "context_speakers", "show", "sarcasm"]
)
def test_a_missing_field_is_named(root: Path, field: str) -> None:
    edit(root / "sarcasm_data.json", lambda clips: clips[FIRST].pop(field))
    assert [(problem.field, problem.problem) for problem in refused(root)] == [
        (field, "is missing")
    ]


@pytest.mark.parametrize(
    "clip_id",
    ["", ".", "..", "../x", "a/b", "a\\b", "a..b", "-x", ".hidden", "a b", "a\n", "NUL", "com1.wav",
     "x.", "é", "x" * 101],
)  # fmt: skip
def test_an_id_unsafe_as_a_file_name_is_refused(root: Path, clip_id: str) -> None:
    edit(
        root / "sarcasm_data.json",
        lambda clips: clips.update({clip_id: clips[FIRST]}),
    )
    (problem,) = refused(root)
    assert (problem.field, problem.value) == ("clip id", clip_id)
    assert "\n" not in str(problem)


PROSODY_CASES: list[tuple[str, dict[str, Any], str]] = [
    ("duration null", {"duration_s": None}, "duration_s"),
    ("duration 0", {"duration_s": 0}, "duration_s"),
    ("duration a string", {"duration_s": "1.2"}, "duration_s"),
    ("fraction above 1", {"voiced_fraction": 1.2}, "voiced_fraction"),
    ("frequency of 0 for unvoiced", {"f0_median_hz": 0}, "f0_median_hz"),
    ("negative SD", {"f0_sd_st": -1.0}, "f0_sd_st"),
    ("count a fraction", {"pause_count": 1.5}, "pause_count"),
    ("count a boolean", {"pause_count": True}, "pause_count"),
    ("pause longer than the clip", {"pause_longest_s": 60.0}, "pause_longest_s"),
    ("contour too short", {"contour_st": [0.0]}, "contour_st"),
    ("contour entry a string", {"contour_st": ["."] * 10}, "contour_st[0]"),
    ("contour entry out of range", {"contour_st": [None] * 9 + [1e3]}, "contour_st[9]"),
    ("unknown field", {"f0_sd": 1.0}, "f0_sd"),
    ("integer too large for a float", {"f0_median_hz": 10**400}, "f0_median_hz"),
]


@pytest.mark.parametrize(
    ("change", "named"),
    [case[1:] for case in PROSODY_CASES],
    ids=[case[0] for case in PROSODY_CASES],
)
def test_a_bad_prosody_record_is_named(root: Path, change: dict[str, Any], named: str) -> None:
    edit(root / "prosody.json", lambda content: content["clips"][FIRST].update(change))
    problem = refused(root)[0]
    assert (problem.where, problem.field) == (f"prosody.json, clip {FIRST}", named)


def test_a_close_field_name_is_suggested(root: Path) -> None:
    edit(root / "prosody.json", lambda c: c["clips"][FIRST].update(f0_sd_sts=1.0))
    (problem,) = refused(root)
    assert problem.remedy == "Did you mean f0_sd_st?"


@pytest.mark.parametrize(
    ("change", "where", "field"),
    [
        ({"schema": "subtext.prosody/99"}, "prosody.json", "schema"),
        ({"schema": None}, "prosody.json", "schema"),
        ({"extractor": ""}, "prosody.json", "extractor"),
        ({"clips": []}, "prosody.json", "clips"),
        ({"clips": {FIRST: None}}, f"prosody.json, clip {FIRST}", "clip"),
        ({"clips": {"9_9": {}}}, "prosody.json, clip 9_9", "clip"),
    ],
    ids=["unknown schema", "no schema", "no extractor", "clips a list", "null", "no such clip"],
)
def test_a_bad_prosody_file_is_named(
    root: Path, change: dict[str, Any], where: str, field: str
) -> None:
    edit(root / "prosody.json", lambda content: content.update(change))
    problem = refused(root)[0]
    assert (problem.where, problem.field) == (where, field)


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ({"clips": {"9_9": {}}}, "pivot_set.json, clip 9_9"),
        ({"clips": {FIRST: 0.3}}, f"pivot_set.json, clip {FIRST}"),
        ({"clips": [FIRST]}, "pivot_set.json"),
        ([FIRST], "pivot_set.json"),
        (None, "pivot_set.json"),
    ],
    ids=["no such clip", "not an object", "clips a list", "a list", "null"],
)
def test_a_bad_pivot_set_is_named(root: Path, content: Any, where: str) -> None:
    (root / "pivot_set.json").write_text(json.dumps(content))
    (problem,) = refused(root)
    assert problem.where == where


def test_duplicate_keys_are_named_at_every_depth(root: Path) -> None:
    path = root / "sarcasm_data.json"
    text = path.read_text()
    path.write_text(
        text.replace(f'"{FIRST}": {{', f'"{FIRST}": {{}}, "{FIRST}": {{"speaker": "X",', 1)
    )
    found = {(problem.where, problem.field, problem.problem) for problem in refused(root)}
    where = f"sarcasm_data.json, clip {FIRST}"
    assert (where, "clip", "is a duplicate key") in found
    assert (where, "speaker", "is a duplicate key") in found


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_named(root: Path, token: str) -> None:
    edit(root / "prosody.json", lambda c: c["clips"][FIRST].update(hnr_mean_db="TOKEN"))
    path = root / "prosody.json"
    path.write_text(path.read_text().replace('"TOKEN"', token))
    (problem,) = refused(root)
    assert problem.where == f"prosody.json, clip {FIRST}"
    assert (problem.field, problem.problem) == ("hnr_mean_db", "is not a finite number")


@pytest.mark.parametrize(
    ("old", "field"),
    [('"utterance": "', "utterance"), ('"speaker": "', "speaker")],
)
def test_half_a_surrogate_pair_is_named(root: Path, old: str, field: str) -> None:
    path = root / "sarcasm_data.json"
    path.write_text(path.read_text().replace(old, old + "\\ud800", 1))
    with pytest.raises(DataError) as caught:
        load_scenarios(root)
    assert [problem.field for problem in caught.value.problems] == [field]
    str(caught.value).encode("utf-8")


def test_a_clip_id_that_is_not_unicode_can_be_printed(root: Path) -> None:
    edit(root / "sarcasm_data.json", lambda clips: clips.update({"\ud800": 1}))
    with pytest.raises(DataError) as caught:
        load_scenarios(root)
    str(caught.value).encode("utf-8")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b'{"a": ', b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"[" * 200_000, b"1" * 5000],
    ids=[
        "empty",
        "truncated",
        "cut in a value",
        "UTF-16",
        "byte order mark",
        "deep",
        "huge integer",
    ],
)
@pytest.mark.parametrize("name", ["sarcasm_data.json", "prosody.json", "pivot_set.json"])
def test_an_unreadable_file_is_named(root: Path, name: str, content: bytes) -> None:
    (root / name).write_bytes(content)
    assert (name, "file") in [(problem.where, problem.field) for problem in refused(root)]


def test_a_byte_order_mark_is_explained(root: Path) -> None:
    path = root / "sarcasm_data.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    problem = refused(root)[0]
    assert "byte order mark" in problem.problem
    assert problem.remedy == "Save the file as UTF-8 without BOM."


@pytest.mark.parametrize("content", ["[]", "{}", "null", '"x"', "3"])
def test_a_clips_file_without_clips_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "sarcasm_data.json").write_text(content)
    (problem,) = refused(tmp_path)
    assert (problem.where, problem.field) == ("sarcasm_data.json", "content")


def test_a_dangling_link_is_not_taken_for_an_absent_file(root: Path) -> None:
    (root / "pivot_set.json").symlink_to(root / "gone.json")
    (problem,) = refused(root)
    assert problem.where == "pivot_set.json"


def test_problems_of_all_files_come_in_one_error(root: Path) -> None:
    edit(root / "sarcasm_data.json", lambda c: c[FIRST].update(utterance="", sarcasm="no"))
    edit(root / "prosody.json", lambda c: c.update(schema="x"))
    (root / "pivot_set.json").write_text("{")
    assert {(problem.where, problem.field) for problem in refused(root)} == {
        (f"sarcasm_data.json, clip {FIRST}", "utterance"),
        (f"sarcasm_data.json, clip {FIRST}", "sarcasm"),
        ("prosody.json", "schema"),
        ("pivot_set.json", "file"),
    }


def test_clips_alone_are_read_whatever_lies_beside_them(root: Path) -> None:
    (root / "prosody.json").write_text("{")
    clips = load_clips(root / "sarcasm_data.json")
    assert clips[FIRST]["utterance"]
    (root / "sarcasm_data.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        load_clips(root / "sarcasm_data.json")


def test_the_root_comes_from_the_argument_then_the_environment_then_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("argument", "environment", "data/mustard"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("SUBTEXT_HOME", str(tmp_path))
    monkeypatch.setenv("SUBTEXT_DATA_ROOT", str(tmp_path / "environment"))
    assert resolve_data_root(str(tmp_path / "argument")) == tmp_path / "argument"
    assert resolve_data_root("argument") == tmp_path / "argument"
    assert resolve_data_root() == tmp_path / "environment"
    assert data_root("not yet there") == tmp_path / "not yet there"
    monkeypatch.setenv("SUBTEXT_DATA_ROOT", "")
    assert resolve_data_root() == tmp_path / "data" / "mustard"


def test_an_absent_root_says_what_is_missing_and_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBTEXT_HOME", str(tmp_path))
    monkeypatch.setenv("SUBTEXT_DATA_ROOT", "gone")
    with pytest.raises(DataError, match=r"sarcasm_data\.json") as caught:
        load_scenarios()
    (problem,) = caught.value.problems
    assert problem.field == "$SUBTEXT_DATA_ROOT"
    assert problem.value == str(tmp_path / "gone")
    assert "flows.data_flow --source mustard" in problem.remedy


def test_a_root_without_the_clips_file_is_refused(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path)
    assert (problem.where, problem.field) == ("sarcasm_data.json", "file")


def test_the_digest_is_sha256_of_the_clips_and_changes_with_any_of_them(root: Path) -> None:
    scenarios = load_scenarios(root)
    canonical = json.dumps(
        list(scenarios.items()), sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )
    assert data_digest(scenarios) == hashlib.sha256(canonical.encode()).hexdigest()
    flipped = {**scenarios, FIRST: {**scenarios[FIRST], "sarcasm": False}}
    reordered = dict(reversed(scenarios.items()))
    assert len({data_digest(s) for s in (scenarios, flipped, reordered)}) == 3
