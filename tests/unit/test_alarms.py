"""Alarms from a training log: each rule at its limit, and a log that lacks what it needs."""

from __future__ import annotations

import math
import random
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
    ACCURACY,
    CLIPPED,
    GRADIENT,
    LENGTH,
    LOOPING,
    MISSING,
    REWARD,
    SAME_TEXT,
    ZERO_SPREAD,
    alarms_so_far,
    training_alarms,
    training_form,
    window_steps,
)

GATE = GateConfig(max_without_signal=0.9, max_clipped=0.2, min_length_ratio=0.25)


def log(n: int = 8, **changes: Any) -> list[dict[str, Any]]:
    """`n` healthy GRPO steps with `changes` to the last quarter, and TRL's closing record."""
    healthy = {
        REWARD: 0.6, ACCURACY: 0.7, GRADIENT: 0.3, ZERO_SPREAD: 0.2, CLIPPED: 0.0, LENGTH: 60.0,
        MISSING: 0.0, SAME_TEXT: 0.3, LOOPING: 0.1,
    }  # fmt: skip
    changed = {NAMES[name]: value for name, value in changes.items()}
    steps = [
        {"step": step, **healthy, **(changed if step > n - max(1, n // 4) else {})}
        for step in range(1, n + 1)
    ]
    return [*steps, {"step": n, "train_runtime": 9.0}]


NAMES = {
    "reward": REWARD,
    "gradient": GRADIENT,
    "zero_spread": ZERO_SPREAD,
    "clipped": CLIPPED,
    "length": LENGTH,
    "missing": MISSING,
    "same_text": SAME_TEXT,
    "looping": LOOPING,
}


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
        pytest.param({"length": 240.0}, [], id="four times the length, at the limit"),
        pytest.param({"length": 241.0}, ["grown_length"], id="grown length"),
        pytest.param({"gradient": 1e-6}, [], id="hardly a gradient"),
        pytest.param({"gradient": 0.0}, ["no_gradient"], id="no gradient"),
        pytest.param({"gradient": 1e-8}, ["no_gradient"], id="rounding error for a gradient"),
        pytest.param({"gradient": None}, ["no_gradient"], id="gradient that is no number, as kept"),
        pytest.param({"gradient": math.nan}, ["no_gradient"], id="the same as TRL has it"),
        pytest.param({"missing": 0.01}, ["missing_rewards"], id="one reward of 100 missing"),
        pytest.param(
            {"missing": 1.0, "reward": None}, ["missing_rewards"], id="every reward, and counted",
        ),
        pytest.param({"reward": math.inf}, ["not_logged"], id="infinite rewards"),
        pytest.param({"same_text": 0.8}, [], id="at the limit of one text"),
        pytest.param({"same_text": 0.81}, ["repeated_answers"], id="one text for all prompts"),
        pytest.param({"looping": 0.5}, [], id="at the limit of looping text"),
        pytest.param({"looping": 0.51}, ["looping_answers"], id="looping text"),
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


value = st.none() | st.floats(0, 1) | st.sampled_from((math.nan, math.inf))
figures = st.fixed_dictionaries(
    {},
    optional={**dict.fromkeys(NAMES.values(), value), ACCURACY: value, LENGTH: st.floats(0, 1e6)},
)


@given(st.lists(figures, max_size=24))
def test_any_log_gives_finite_text(rows: list[dict[str, Any]]) -> None:
    history = [{"step": step, **row} for step, row in enumerate(rows)]
    for alarm in [*training_alarms(history, GATE), *alarms_so_far(history, GATE, 3)]:
        said = alarm["message"].replace("None, NaN or infinite", "")
        assert "nan" not in said.lower()
        assert "inf" not in said


# --- reward without accuracy -------------------------------------------------------------------


def trend(
    n: int, reward: tuple[float, float], accuracy: tuple[float, float], noise: float = 0.08
) -> list[dict[str, Any]]:
    """`n` steps in which both go from the first value to the second, with noise on every step."""
    rng = random.Random(0)

    def at(step: int, ends: tuple[float, float]) -> float:
        return ends[0] + (ends[1] - ends[0]) * step / (n - 1) + rng.gauss(0, noise)

    return [
        {**log(1)[0], "step": 1 + step, REWARD: at(step, reward), ACCURACY: at(step, accuracy)}
        for step in range(n)
    ]


@pytest.mark.parametrize(
    ("reward", "accuracy", "noise", "expected"),
    [
        pytest.param((0.3, 0.8), (0.7, 0.3), 0.08, True, id="reward up, accuracy down"),
        pytest.param((0.3, 0.8), (0.5, 0.8), 0.08, False, id="both up"),
        pytest.param((0.3, 0.8), (0.6, 0.6), 0.08, False, id="accuracy stays"),
        pytest.param((0.8, 0.3), (0.7, 0.3), 0.08, False, id="both down"),
        pytest.param((0.5, 0.5), (0.7, 0.3), 0.08, False, id="reward stays"),
        pytest.param((0.3, 0.8), (0.7, 0.3), 0.5, False, id="lost in noise"),
        pytest.param((0.3, 0.8), (0.6, 0.51), 0.001, False, id="a certain and small fall"),
        pytest.param((0.3, 0.8), (0.7, 0.3), 0.0, True, id="no noise at all"),
    ],
)
def test_reward_without_accuracy(
    reward: tuple[float, float], accuracy: tuple[float, float], noise: float, expected: bool
) -> None:
    steps = trend(40, reward, accuracy, noise)
    alarms = [*training_alarms(steps, GATE), *alarms_so_far(steps, GATE, 10)]
    assert [alarm["name"] for alarm in alarms] == ["reward_without_accuracy"] * 2 * expected


def test_no_trend_from_a_handful_of_steps_or_without_the_accuracy() -> None:
    assert training_alarms(trend(16, (0.0, 1.0), (1.0, 0.0)), GATE) == []
    steps = trend(40, (0.3, 0.8), (0.7, 0.3))
    for step in steps:
        del step[ACCURACY]
    assert training_alarms(steps, GATE) == []


# --- while training runs -----------------------------------------------------------------------


def names_so_far(steps: list[dict[str, Any]], gate: GateConfig = GATE) -> list[str]:
    return [alarm["name"] for alarm in alarms_so_far(steps, gate, 4)]


def test_nothing_is_said_before_there_is_a_window() -> None:
    steps = log(8, clipped=1.0, gradient=0.0, zero_spread=1.0)[6:8]
    assert names_so_far(steps) == []
    assert names_so_far(steps * 2) == ["no_learning_signal", "no_gradient", "clipped_completions"]


def test_one_missing_reward_is_enough() -> None:
    assert names_so_far(log(1, missing=0.1)) == ["missing_rewards"]


def test_an_alarm_passes_with_its_window() -> None:
    steps = log(4, missing=0.1)[:4]
    assert names_so_far([*steps, *log(3)[:3]]) == ["missing_rewards"]
    assert names_so_far([*steps, *log(4)[:4]]) == []


def test_lengths_are_compared_with_those_of_a_window_before() -> None:
    steps = log(16, length=5.0)[:16]
    assert names_so_far(steps) == ["collapsed_length"]
    assert names_so_far([*steps[:3], *steps[12:16]]) == []


@pytest.mark.parametrize(
    ("limit", "clipped", "expected"),
    [(0.2, 0.5, False), (0.2, 0.51, True), (0.7, 0.6, False), (0.7, 0.71, True), (1.0, 1.0, False)],
)
def test_half_the_completions_may_be_cut_until_training_has_shortened_them(
    limit: float, clipped: float, expected: bool
) -> None:
    steps = log(16, clipped=clipped)[:16]
    found = names_so_far(steps, GATE.model_copy(update={"max_clipped": limit}))
    assert found == ["clipped_completions"] * expected


def test_steps_that_sampled_nothing_and_figures_that_are_not_logged() -> None:
    """TRL samples every `num_iterations` steps, and a log may start with records of other kinds."""
    others = [{"step": 1, "loss": 0.1, GRADIENT: 0.0}, {"train_runtime": 1.0}]
    assert names_so_far(others * 8) == []
    assert names_so_far([{"step": step, REWARD: 0.5} for step in range(9)]) == []


def test_the_message_says_what_to_do() -> None:
    (alarm,) = alarms_so_far(log(16, looping=0.6)[:16], GATE, 4)
    assert alarm["message"] == (
        "60 % of the completions repeat themselves over the last 4 of 16 steps, more than 0.5. "
        "Raise grpo.temperature, or lower the learning rates."
    )


@pytest.mark.parametrize(
    ("groups_per_step", "expected"), [(16, 10), (8, 10), (3.2, 10), (3, 11), (2, 16), (1, 32)]
)
def test_a_window_is_ten_steps_and_32_groups(groups_per_step: float, expected: int) -> None:
    assert window_steps(groups_per_step) == expected


def simulated(
    rng: random.Random, n: int, groups: int, size: int, accuracy: tuple[float, float]
) -> list[dict[str, Any]]:
    """A run whose reward rises by its form alone, while true accuracy goes from one to the other.

    Answers to a prompt are right together or wrong together, which makes steps differ most. Half
    the groups are without spread, a tenth of the completions is cut, lengths double.
    """
    steps = []
    for step in range(n):
        done = step / (n - 1)
        p = accuracy[0] + done * (accuracy[1] - accuracy[0])
        right = sum(rng.random() < p for _ in range(groups)) / groups
        cut = sum(rng.random() < 0.1 for _ in range(groups * size)) / (groups * size)
        steps.append(
            {
                "step": 1 + step,
                REWARD: 0.3 + 0.4 * done + 0.1 * right,
                ACCURACY: right,
                ZERO_SPREAD: sum(rng.random() < 0.5 for _ in range(groups)) / groups,
                GRADIENT: 0.1,
                CLIPPED: cut,
                LENGTH: 60 * (1 + done) * rng.uniform(0.6, 1.4),
                MISSING: 0.0,
                SAME_TEXT: 0.5 * rng.random(),
                LOOPING: 0.2 * rng.random(),
            }
        )
    return steps


def first_alarm(steps: list[dict[str, Any]], window: int) -> str:
    for n in range(1, len(steps) + 1):
        if alarms := alarms_so_far(steps[:n], GATE, window):
            return alarms[0]["name"]
    return ""


SHAPES = [
    pytest.param(26, 8, 8, id="demo"),
    pytest.param(60, 2, 4, id="cpu"),
    pytest.param(200, 1, 4, id="t4"),
]


@pytest.mark.parametrize(("n", "groups", "size"), SHAPES)
def test_healthy_noise_raises_few_alarms(n: int, groups: int, size: int) -> None:
    """Looked at after every step; what is simulated is the worst of what is healthy."""
    rng = random.Random(1)
    runs = [simulated(rng, n, groups, size, (0.5, 0.5)) for _ in range(8000 // n)]
    alarms = [name for run in runs if (name := first_alarm(run, window_steps(groups)))]
    assert len(alarms) <= 0.02 * len(runs), alarms


@pytest.mark.parametrize(("n", "groups", "size"), SHAPES)
def test_a_fall_to_nothing_is_seen_through_the_noise(n: int, groups: int, size: int) -> None:
    rng = random.Random(1)
    runs = [simulated(rng, n, groups, size, (0.9, 0.0)) for _ in range(20)]
    seen = [first_alarm(run, window_steps(groups)) for run in runs]
    assert seen.count("reward_without_accuracy") >= 18


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
