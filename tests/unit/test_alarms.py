"""Alarms from a training log: each rule at its limit, and a log that lacks what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtext import strict_json
from subtext.answer import format_answer
from subtext.config import GateConfig
from subtext.evaluation.alarms import (
    CLIPPED,
    LENGTH,
    REWARD,
    ZERO_SPREAD,
    training_alarms,
    training_form,
)

GATE = GateConfig(max_without_signal=0.9, max_clipped=0.2, min_length_ratio=0.25)


def log(n: int = 8, **changes: Any) -> list[dict[str, Any]]:
    """`n` healthy GRPO steps with `changes` to the last quarter, and TRL's closing record."""
    healthy = {REWARD: 0.6, ZERO_SPREAD: 0.2, CLIPPED: 0.0, LENGTH: 60.0}
    changed = {NAMES[name]: value for name, value in changes.items()}
    steps = [
        {"step": step, **healthy, **(changed if step > n - max(1, n // 4) else {})}
        for step in range(1, n + 1)
    ]
    return [*steps, {"step": n, "train_runtime": 9.0}]


NAMES = {"reward": REWARD, "zero_spread": ZERO_SPREAD, "clipped": CLIPPED, "length": LENGTH}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [], id="healthy"),
        pytest.param({"zero_spread": 0.9}, [], id="at the limit of equal rewards"),
        pytest.param({"zero_spread": 0.91}, ["no_learning_signal"], id="nothing to learn from"),
        pytest.param({"clipped": 0.2}, [], id="at the limit of cut completions"),
        pytest.param({"clipped": 0.21}, ["clipped_completions"], id="cut completions"),
        pytest.param({"length": 15.0}, [], id="a quarter of the length, at the limit"),
        pytest.param({"length": 14.0}, ["collapsed_length"], id="collapsed length"),
        pytest.param({"reward": None}, ["not_logged"], id="rewards that are no numbers"),
        pytest.param({"zero_spread": None}, ["not_logged"], id="spread not logged"),
        pytest.param(
            {"clipped": 1.0, "length": 1.0, "zero_spread": 1.0},
            ["no_learning_signal", "clipped_completions", "collapsed_length"], id="all at once",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("n", [4, 8, 100])
def test_rules(changes: dict[str, Any], expected: list[str], n: int) -> None:
    alarms = training_alarms(log(n, **changes), GATE)
    assert [alarm["name"] for alarm in alarms] == expected
    assert strict_json.loads(strict_json.dumps(alarms)) == alarms


def test_a_message_says_what_was_measured_and_against_which_limit() -> None:
    (alarm,) = training_alarms(log(8, clipped=0.5), GATE)
    assert alarm["message"] == (
        "50 % of the completions were cut at grpo.max_completion_length over the last 2 of 8 "
        "steps, more than gate.max_clipped = 0.2"
    )


def test_a_metric_that_trl_renamed_is_not_passed_over() -> None:
    renamed = [{"step": 1, REWARD: 0.5, "some/other_name": 0.0}]
    alarms = training_alarms(renamed, GATE)
    assert [alarm["name"] for alarm in alarms] == ["not_logged"] * 3
    assert [name for name in (ZERO_SPREAD, CLIPPED, LENGTH)
            if not any(name in alarm["message"] for alarm in alarms)] == []  # fmt: skip


@pytest.mark.parametrize("history", [[], [{"step": 3, "loss": 0.1}, {"train_runtime": 1.0}]])
def test_a_run_without_grpo_has_no_alarm(history: list[dict[str, Any]]) -> None:
    assert training_alarms(history, GATE) == []


def test_limits_that_are_off() -> None:
    off = GateConfig(max_without_signal=1, max_clipped=1, min_length_ratio=0)
    assert training_alarms(log(8, clipped=1.0, length=0.0, zero_spread=1.0), off) == []


value = st.none() | st.floats(0, 1)


@given(st.lists(st.tuples(value, value, value, st.none() | st.floats(0, 1e6)), max_size=9))
def test_any_log_gives_finite_text(rows: list[tuple[Any, ...]]) -> None:
    keys = (REWARD, ZERO_SPREAD, CLIPPED, LENGTH)
    history = [{"step": i, **dict(zip(keys, row, strict=True))} for i, row in enumerate(rows)]
    for alarm in training_alarms(history, GATE):
        assert "nan" not in alarm["message"]
        assert "inf" not in alarm["message"]


# --- the form of completions -------------------------------------------------------------------

STRICT = format_answer("It is so.", "sarcastic", 0.7)


def write(folder: Path, step: int, *texts: str) -> None:
    """As TRL does: completions are lists of messages, one file a step."""
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    table = {"step": [step] * len(texts), "completion": completions, "correct": [1] * len(texts)}
    pd.DataFrame(table).to_parquet(folder / f"completions_{step:05d}.parquet")


def test_the_last_steps_are_read_in_the_order_of_steps(tmp_path: Path) -> None:
    write(tmp_path, 99_998, "?", "?")
    write(tmp_path, 99_999, STRICT, f"{STRICT} and so on")
    write(tmp_path, 100_000, STRICT, f" {STRICT}\n")
    form = training_form(tmp_path, n_last_steps=2)
    assert form is not None
    assert (form["n"], form["strict_rate"]) == (4, 0.75)
    assert (form["first_step"], form["last_step"]) == (99_999, 100_000)
    assert form["interval"][0] < 0.75 < form["interval"][1]
    assert strict_json.loads(strict_json.dumps(form)) == form


def test_fewer_steps_than_asked_for(tmp_path: Path) -> None:
    write(tmp_path, 1, STRICT)
    form = training_form(tmp_path)
    assert form is not None
    assert (form["n"], form["first_step"], form["last_step"]) == (1, 1, 1)


def test_no_completions_no_form(tmp_path: Path) -> None:
    assert training_form(tmp_path / "absent") is None
    assert training_form(tmp_path) is None
