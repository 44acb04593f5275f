"""Progress: what a watcher gets, and the terminal's bar."""

import io
import math

import pytest

from subtext import progress
from subtext.progress import Progress, TerminalBar, finite_metrics, unit_of


@pytest.mark.parametrize(
    ("value", "kept"),
    [(1, True), (0.5, True), (math.nan, False), (math.inf, False), (None, False), ("x", False)],
)
def test_only_finite_numbers_are_passed_on(value, kept):
    assert ("train/x" in finite_metrics("train", {"x": value})) is kept


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "drawn"), [(Terminal(), True), (io.StringIO(), False)])
def test_the_bar_is_drawn_on_a_terminal_only(monkeypatch, stream, drawn):
    monkeypatch.setattr("sys.stderr", stream)
    with TerminalBar() as bar:
        bar(Progress("warm_start", 1, 4, {"warm_start/loss": 2.0}))
        bar(Progress("grpo", 3, 3, {"train/reward": 0.25}))
    shown = stream.getvalue()
    assert ("warm start" in shown and "reward=0.250" in shown) is drawn


def test_nobody_watches():
    assert progress.nobody(Progress("grpo", 1, 1)) is None


@pytest.mark.parametrize(
    ("stage", "unit"),
    [
        ("fetch", "bytes"),
        ("unpack", "files"),
        ("pivot", "foldings"),
        ("warm_start", "steps"),
        ("grpo", "steps"),
        ("measure", "clips"),
        ("judge base", "clips"),
        ("judge no_prosody", "clips"),
        ("judge step_13", "clips"),
    ],
)
def test_what_a_stage_counts(stage, unit):
    assert unit_of(stage) == unit


def test_the_bar_of_an_altered_prompt_counts_clips(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with TerminalBar() as bar:
        bar(Progress("judge shuffled_within_speaker", 5, 40))
    assert "judge shuffled within speaker" in stream.getvalue()
    assert "5/40" in stream.getvalue()
    assert " clips" in stream.getvalue()
