"""MUStARD's five official folds, from `official_folds.json` or the authors' `split_indices.p`.

- `official_folds.json`: a list of five `{"train": [clip ids], "test": [clip ids]}`.
- `split_indices.p`: a pickle of five pairs (train, test) of numpy int64 arrays: positions in the
  key order of `sarcasm_data.json`. A pickle is a program. This one is run by nobody: its opcodes
  must be among those that build lists, tuples, numbers and texts, and the three names of numpy
  that it may mention stand for the inert classes below. Everything else is refused unread.

Folds are not stratified, nor grouped by scene or speaker.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from subtext.data.folder import AUTHORS_FOLDS_FILE, CLIPS_FILE, FOLDS_FILE
from subtext.data.json_files import read_json
from subtext.errors import DataError, Problem, reason_of

N_FOLDS = 5

_LARGEST_BYTES = 1_000_000  # the authors' file has 28,128; it grows by 40 bytes a clip
_REMEDY = f"Take {FOLDS_FILE}, or data/{AUTHORS_FOLDS_FILE} of github.com/soujanyaporia/MUStARD."
# No dict or set (their keys are hashed, without end where tuples nest), no extension registry, no
# persistent ids, no other way than REDUCE to call something.
_OPCODES = frozenset((
    "PROTO", "FRAME", "STOP", "MARK", "POP", "EMPTY_LIST", "LIST", "APPEND", "APPENDS",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "NONE", "NEWTRUE", "NEWFALSE", "INT",
    "BININT", "BININT1", "BININT2", "LONG1", "STRING", "SHORT_BINSTRING", "BINSTRING",
    "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES", "GLOBAL", "STACK_GLOBAL",
    "REDUCE", "BUILD", "GET", "BINGET", "LONG_BINGET", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE",
))  # fmt: skip
_MEMO = ("PUT", "BINPUT", "LONG_BINPUT")


class Fold(NamedTuple):
    """Clip ids of one fold, in the file's order."""

    train: list[str]
    test: list[str]


def read_folds(root: Path, scenarios: Mapping[str, Any]) -> list[Fold]:
    """Return the five folds of the corpus in `root`.

    Raises DataError where neither file is there, one can't be read, or a fold names unknown
    clips, holds a clip twice or leaves one out, or where two folds test the same clip.
    """
    if (path := root / FOLDS_FILE).exists():
        folds = _from_json(path)
    elif (path := root / AUTHORS_FOLDS_FILE).exists():
        folds = _from_pickle(path, list(scenarios))
    else:
        problem = Problem(
            str(root), FOLDS_FILE, None, f"is not there, nor is {AUTHORS_FOLDS_FILE}",
            f"{_REMEDY} Without them choose another data.split.",
        )  # fmt: skip
        raise DataError("No official folds", [problem])
    problems = list(_disagreements(path.name, folds, scenarios))
    if problems:
        raise DataError(f"Official folds in {path} refused", problems)
    return folds


def _disagreements(
    where: str, folds: Sequence[Fold], scenarios: Mapping[str, Any]
) -> Iterator[Problem]:
    if len(folds) != N_FOLDS:
        yield Problem(where, "folds", len(folds), f"is not {N_FOLDS} folds", _REMEDY)
    for index, fold in enumerate(folds):
        field, counts = f"folds[{index}]", Counter([*fold.train, *fold.test])
        for side, ids in fold._asdict().items():
            if not ids:
                yield Problem(where, f"{field}.{side}", ids, "holds no clip", _REMEDY)
        unknown = sorted(counts.keys() - scenarios.keys())
        missing = sorted(scenarios.keys() - counts.keys())
        twice = sorted(clip_id for clip_id, count in counts.items() if count > 1)
        for ids, what in (
            (unknown, f"are not in {CLIPS_FILE}"),
            (missing, f"are clips of {CLIPS_FILE} that the fold leaves out"),
            (twice, "are in the fold more than once"),
        ):
            if ids:
                remedy = f"The folds belong to another corpus, or were edited. {_REMEDY}"
                yield Problem(where, field, ids, what, remedy)
    tested = Counter(clip_id for fold in folds for clip_id in set(fold.test))
    again = sorted(clip_id for clip_id, count in tested.items() if count > 1)
    if again:
        yield Problem(where, "test", again, "are tested by more than one fold", _REMEDY)


def _from_json(path: Path) -> list[Fold]:
    problems: list[Problem] = []
    content = read_json(path, lambda keys: (path.name, ".".join(keys) or "content"), problems)
    if not problems:
        problems += _shape_problems(path.name, content)
    if problems:
        raise DataError(f"Official folds in {path} refused", problems)
    return [Fold(list(fold["train"]), list(fold["test"])) for fold in content]


def _shape_problems(where: str, content: Any) -> Iterator[Problem]:
    remedy = f'Write [{{"train": [ids], "test": [ids]}}, …], {N_FOLDS} of them. {_REMEDY}'
    if not isinstance(content, list):
        yield Problem(where, "content", content, "is no list of folds", remedy)
        return
    for index, fold in enumerate(content):
        for side in Fold._fields:
            ids = fold.get(side) if isinstance(fold, dict) else None
            if not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
                yield Problem(where, f"folds[{index}].{side}", ids, "is no list of ids", remedy)


def _from_pickle(path: Path, ids: Sequence[str]) -> list[Fold]:
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise ValueError(f"it has {path.stat().st_size} bytes, {_LARGEST_BYTES} at most")
        content = path.read_bytes()
        _check_opcodes(content)
        pairs = _Unpickler(io.BytesIO(content), encoding="latin1").load()
        return [Fold(*(_clip_ids(side, ids) for side in pair)) for pair in _pairs(pairs)]
    # Whatever a forged or torn file makes the unpickler or the checks raise is this one refusal.
    except Exception as error:
        problem = Problem(
            path.name, "content", str(path),
            f"is not the authors' pickle of positions: {reason_of(error)}", _REMEDY,
        )  # fmt: skip
        raise DataError("Official folds refused", [problem]) from None


def _check_opcodes(content: bytes) -> None:
    """Raise ValueError for an opcode that the authors' file has no use for, before any is run."""
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name not in _OPCODES:
            raise ValueError(f"it uses {opcode.name}")
        # The memo is an array up to the highest index: one large number would fill the memory.
        if opcode.name in _MEMO and not 0 <= int(argument or 0) <= len(content):
            raise ValueError(f"it numbers an object {argument}")


class _Dtype:
    """Stands for numpy.dtype: keeps name and byte order."""

    def __init__(self, name: str, *_: Any) -> None:
        self.kind = (name, "")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.kind = (self.kind[0], state[1])


class _Array:
    """Stands for numpy.ndarray: keeps what an array was saved as."""

    state: tuple[Any, ...] = ()

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def integers(self) -> tuple[int, ...]:
        """The array's values. Raises ValueError unless it is one-dimensional little-endian int64
        with as many bytes as its shape says."""
        _version, (n,), dtype, _fortran, raw = self.state
        data = raw.encode("latin1") if isinstance(raw, str) else raw
        if not isinstance(dtype, _Dtype) or dtype.kind != ("i8", "<"):
            raise ValueError("an array is not of little-endian int64")
        if not isinstance(data, bytes) or type(n) is not int or len(data) != 8 * n:
            raise ValueError("the size of an array is not what its shape says")
        return struct.unpack(f"<{n}q", data)


def _empty_array(*_: Any) -> _Array:
    """Stands for numpy's _reconstruct(ndarray, (0,), b"b"), which makes an array to be filled."""
    return _Array()


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        stand_in = _STAND_INS.get((module_name, global_name))
        if stand_in is None:
            raise ValueError(f"it names {module_name}.{global_name}")
        return stand_in


def _pairs(value: Any) -> list[tuple[_Array, _Array]]:
    if not isinstance(value, list) or len(value) != N_FOLDS:
        raise ValueError(f"it holds no list of {N_FOLDS} folds")
    for pair in value:
        if not isinstance(pair, tuple) or len(pair) != len(Fold._fields):
            raise ValueError("a fold is no pair of train and test")
        if not all(isinstance(side, _Array) for side in pair):
            raise ValueError("a fold holds something other than two arrays")
    return value


def _clip_ids(side: _Array, ids: Sequence[str]) -> list[str]:
    positions = side.integers()
    if any(not 0 <= position < len(ids) for position in positions):
        raise ValueError(f"a position lies outside 0 to {len(ids) - 1}: it is of another corpus")
    return [ids[position] for position in positions]
