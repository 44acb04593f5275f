"""Strict JSON: sorted, atomic, no NaN, no duplicate keys."""

import errno
import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.disk import no_room

from subtext import strict_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ('{"b": {"a": 1, "a": 2}}', "duplicate key 'a'"),
        ("NaN", "NaN"),
        ("[-Infinity]", "Infinity"),
        ("[" * 100_000, "too deeply"),
        ("{", "Expecting"),
    ],
)
def test_what_is_no_strict_json_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        strict_json.loads(text)


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": [-math.inf]}])
def test_nan_is_never_written(value, tmp_path):
    path = tmp_path / "x.json"
    path.write_text("old")
    with pytest.raises(ValueError, match="not JSON compliant"):
        strict_json.write(path, value)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize("kind", ["fifo", "folder", "link-to-folder"])
def test_what_is_no_file_is_never_replaced(kind, tmp_path):
    path = tmp_path / "x"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path)
    before = path.lstat()
    with pytest.raises(FileExistsError, match="no regular file"):
        strict_json.write(path, 1)
    assert path.lstat() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_finds_no_room_names_the_file_and_leaves_nothing(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(OSError, match="too large") as caught, no_room():
        strict_json.write(path, 1)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
    assert list(tmp_path.iterdir()) == []


def test_what_can_not_be_begun_is_named_and_not_the_temporary_file(tmp_path):
    path = tmp_path / ("x" * 250)  # a name that the temporary file's own is too long for
    with pytest.raises(OSError, match="too long") as caught:
        strict_json.write(path, 1)
    assert caught.value.filename == str(path)


def test_a_link_keeps_pointing_at_the_file(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("old")
    link = tmp_path / "link"
    link.symlink_to("data/x")
    strict_json.write(link, 1)
    assert link.is_symlink()
    assert (tmp_path / "data" / "x").read_text() == "1\n"


def test_equal_values_give_equal_bytes(tmp_path):
    one = strict_json.write(tmp_path / "1", {"b": 1, "a": "é"}).read_bytes()
    two = strict_json.write(tmp_path / "2", {"a": "é", "b": 1}).read_bytes()
    assert one == two == '{\n  "a": "é",\n  "b": 1\n}\n'.encode()


@given(VALUES)
def test_finite_values_survive_a_round_trip(value):
    finite = strict_json.finite(value)
    assert strict_json.loads(strict_json.dumps(finite)) == finite


def test_a_file_that_holds_just_that_is_not_touched(tmp_path):
    path = strict_json.write(tmp_path / "a.json", {"a": 1})
    os.utime(path, ns=(1, 1))
    strict_json.write(path, {"a": 1})
    assert path.stat().st_mtime_ns == 1
    strict_json.write(path, {"a": 2})
    assert path.stat().st_mtime_ns > 1
