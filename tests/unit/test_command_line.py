"""What the command line says to somebody who interrupted it."""

import os

import pytest

from flows.command_line import _how_to_go_on


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBTEXT_HOME", str(tmp_path))
    return tmp_path


def make_run(home, run_id: str, second: int) -> None:
    config = home / "runs" / run_id / "config.json"
    config.parent.mkdir(parents=True)
    config.touch()
    os.utime(config, (second, second))
    os.utime(config.parent, (second, second))


def test_a_run_that_was_named_goes_on_with_the_same_command(home):
    named = {"training": {"run_id": "mine"}}
    assert _how_to_go_on("demo", named, 0) == "Go on with the same command."


def test_a_run_that_nobody_named_is_named(home):
    for second, run_id in enumerate(["earlier", "first", "latest"], start=10):
        make_run(home, run_id, second)
    said = _how_to_go_on("demo", {}, 11)
    assert said == "Go on with the same command and --set training.run_id=latest"


def test_before_there_is_a_run_there_is_nothing_to_go_on_with(home):
    make_run(home, "earlier", 10)
    assert _how_to_go_on("demo", {}, 11) == "Nothing was made yet."
