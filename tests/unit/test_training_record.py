"""What training.json says of a training in parts, and when a training counts as finished."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from subtext import strict_json
from subtext.errors import DataError
from subtext.policy.training_record import TrainingRecord, finished_training
from subtext.run_dir import RunDir

HISTORY = [
    {"step": 1, "loss": 0.1, "reward": 0.2, "accuracy": 0.5},
    {"step": 2, "loss": 0.1},  # the same answers once more, as grpo.num_iterations = 2 has it
    {"step": 3, "loss": 0.1, "reward": math.nan, "accuracy": 0.75},
    {"step": 3, "train_runtime": 9.0},
]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run").create()


def test_figures_of_the_first_and_the_last_answers(run):
    record = TrainingRecord(run).write(HISTORY)
    assert record["steps"] == 3
    assert record["first"] == {"reward": 0.2, "accuracy": 0.5}
    assert record["final"] == {"reward": None, "accuracy": 0.75}
    assert (record["finished"], record["stopped"], record["resumed_at"]) == (False, None, [])
    assert strict_json.read(run.training) == record


def test_parts_add_up(run, monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    first = TrainingRecord(run)
    first.go_on_from(0)
    now = 110.0
    first.write(HISTORY[:1])
    now = 117.0  # killed: the seven seconds are on no record
    second = TrainingRecord(run)
    second.go_on_from(1)
    now = 120.5
    assert second.write(HISTORY)["train_runtime_s"] == 13.5
    third = TrainingRecord(run)
    third.go_on_from(3)
    now = 121.0
    record = third.write(HISTORY, finished=True)
    assert (record["train_runtime_s"], record["resumed_at"]) == (14.0, [1, 3])


def test_only_a_finished_training_is_finished(run):
    assert finished_training(run) is None
    TrainingRecord(run).write(HISTORY)
    assert finished_training(run) is None
    stopped = {"alarm": "no signal", "step": 3}
    assert TrainingRecord(run).write(HISTORY, stopped=stopped)["stopped"] == stopped
    assert finished_training(run) is None
    assert finished_training(run) is None
    record = TrainingRecord(run).write(HISTORY, finished=True)
    assert finished_training(run) == record


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"finished": "yes"}, "finished"),
        ({"steps": None}, "steps"),
        ({"resumed_at": 3}, "resumed_at"),
        ({"stopped": {"alarm": "x"}}, "stopped.step"),
        ({"first": {}}, "first.reward"),
    ],
)
def test_another_shape_is_refused_with_what_to_do(run, change, field):
    record = TrainingRecord(run).write(HISTORY, finished=True)
    strict_json.write(run.training, {**record, **change})
    with pytest.raises(DataError) as caught:
        finished_training(run)
    assert caught.value.problems[0].field == field
    assert "goes on from its newest checkpoint" in caught.value.problems[0].remedy
