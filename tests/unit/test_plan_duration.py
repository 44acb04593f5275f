"""Predicted duration and cost: from earlier runs of the same kind, or honestly unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subtext import strict_json
from subtext.plan.batch import batch_arithmetic
from subtext.plan.duration import Duration, predict_duration
from subtext.policy.precision import MachineFacts, choose_precision
from subtext.profiles import resolve
from subtext.run_dir import RunDir

FACTS = MachineFacts(None, frozenset(), has_bitsandbytes=True)
DEMO = resolve("demo")


def earlier(
    runs: Path,
    name: str,
    step_s: list[float],
    knobs: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
) -> None:
    """A run directory as training leaves it: configuration, TRL's log and training.json."""
    run = RunDir(runs / name).create()
    config = resolve("demo", knobs or {})
    strict_json.write(run.config, {"profile": "demo", "config": config.model_dump(mode="json")})
    history: list[dict[str, Any]] = [
        {"step": step, "reward": 0.5, "step_time": seconds} for step, seconds in enumerate(step_s)
    ]
    strict_json.write(run.log_history, [*history, {"train_runtime": sum(step_s)}])
    if training:
        whole = {
            "finished": True, "steps": len(step_s), "train_runtime_s": 0.0, "resumed_at": [],
            "stopped": None, "first": {"reward": 0.1, "accuracy": None},
            "final": {"reward": 0.2, "accuracy": None},
        }  # fmt: skip
        strict_json.write(run.training, {**whole, **training})


def predicted(runs: Path, knobs: dict[str, Any] | None = None, n_answers: int = 0) -> Duration:
    config = resolve("demo", knobs or {})
    return predict_duration(
        runs, config, choose_precision(FACTS, config.model), FACTS, n_answers
    )  # fmt: skip


def test_nothing_measured_is_not_guessed(tmp_path: Path) -> None:
    found = predicted(tmp_path / "no-runs-yet")
    assert (found.seconds, found.cost(2.5)) == (None, None)
    assert "--set grpo.max_steps=3" in found.basis


def test_the_median_step_is_scaled_by_steps_and_length(tmp_path: Path) -> None:
    earlier(tmp_path, "a", [9.0, 2.0, 2.0])
    found = predicted(tmp_path, {"grpo": {"max_steps": 50}})
    assert (found.step_s, found.train_s, found.n_steps_measured) == (2.0, 100.0, 3)
    twice_as_long = predicted(tmp_path, {"grpo": {"max_steps": 50, "max_completion_length": 256}})
    assert twice_as_long.train_s == 200.0


def test_judging_is_counted_by_answers(tmp_path: Path) -> None:
    earlier(tmp_path, "a", [3.2, 3.2])
    found = predicted(tmp_path, n_answers=640)
    assert found.judge_s == pytest.approx(640 / 64 * 3.2)
    assert found.seconds == pytest.approx(found.judge_s + 26 * 3.2)


def test_judging_gains_nothing_from_a_second_process(tmp_path: Path) -> None:
    two = {"training": {"num_processes": 2}}
    earlier(tmp_path, "a", [3.2, 3.2], two)
    assert predicted(tmp_path, two, n_answers=640).judge_s == pytest.approx(640 / 64 * 3.2)
    assert predicted(tmp_path).seconds is None, "a step of two processes is another step"


def test_warm_start_and_loading_come_from_a_whole_run(tmp_path: Path) -> None:
    earlier(tmp_path, "a", [1.0, 1.0], training={"train_runtime_s": 62.0})
    earlier(tmp_path, "b", [1.0], training={"train_runtime_s": 900.0, "resumed_at": [1]})
    earlier(tmp_path, "c", [1.0], training={"train_runtime_s": 900.0, "finished": False})
    found = predicted(tmp_path)
    assert found.train_s == 26 + 60.0
    assert "not counted" not in found.basis


def test_without_a_whole_run_it_says_what_is_not_counted(tmp_path: Path) -> None:
    earlier(tmp_path, "a", [1.0])
    assert "warm start were not measured and are not counted" in predicted(tmp_path).basis


@pytest.mark.parametrize(
    "knobs",
    [
        {"model": {"source": "path", "name": "elsewhere"}},
        {"model": {"precision": "bf16"}},
        {"training": {"per_device_train_batch_size": 32}},
        {"training": {"gradient_accumulation_steps": 2}},
        {"training": {"gradient_checkpointing": True}},
        {"grpo": {"num_generations": 4}},
        {"lora": {"r": 8}},
    ],
    ids=["base", "dtype", "batch", "accumulation", "checkpointing", "generations", "adapter"],
)
def test_a_run_of_another_kind_measures_nothing(tmp_path: Path, knobs: dict[str, Any]) -> None:
    earlier(tmp_path, "a", [1.0, 1.0], knobs)
    assert predicted(tmp_path).seconds is None
    assert predicted(tmp_path, knobs).seconds is not None


def test_runs_that_can_not_be_read_are_passed_over(tmp_path: Path) -> None:
    earlier(tmp_path, "a", [2.0])
    earlier(tmp_path, "b", [50.0])
    (tmp_path / "b" / "config.json").write_text("{")
    earlier(tmp_path, "c", [50.0], {"model": {"precision": "fp32"}})
    strict_json.write(tmp_path / "c" / "log_history.json", [{"reward": 1.0, "step_time": None}])
    found = predicted(tmp_path)
    assert (found.step_s, found.run_ids) == (2.0, ("a",))


def test_cost_is_hours_times_price() -> None:
    found = Duration(5400.0, 5000.0, 400.0, 1.0, 3, ("a",), "")
    assert found.cost(2.0) == 3.0
    assert found.cost(0.0) is None, "a price of 0 means that none is known"


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        pytest.param(
            {}, {"completions_a_step": 64, "prompts_a_step": 8, "completions": 26 * 64,
                 "epochs": 1.625}, id="demo",
        ),
        pytest.param(
            {"grpo": {"num_iterations": 2}, "training": {"save_steps": 2}},
            {"completions": 13 * 64, "epochs": 0.812}, id="each batch trained on twice",
        ),
        pytest.param(
            {"training": {"gradient_accumulation_steps": 2}},
            {"completions_a_step": 128, "prompts_a_step": 16, "epochs": 3.25}, id="accumulation",
        ),
    ],
)  # fmt: skip
def test_batch_arithmetic(knobs: dict[str, Any], expected: dict[str, Any]) -> None:
    found = batch_arithmetic(resolve("demo", knobs))
    assert {name: found[name] for name in expected} == expected
    assert f"{found['completions_a_step']} completions a step" in found["in_words"]
