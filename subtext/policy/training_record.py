"""`training.json`: how far training is, how long it took, where it was taken up again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from subtext import strict_json
from subtext.config import RunConfig
from subtext.errors import TrainingStoppedError
from subtext.policy.ranks import writes_records
from subtext.run_dir import RunDir

Record = dict[str, Any]


def finished_training(run: RunDir) -> Record | None:
    """Return what `run`'s training.json says where training is finished, else None.

    Raises DataError for a file that can't be read.
    """
    record = run.read(run.training)
    return dict(record) if record is not None and record["finished"] else None


def refuse_after_alarm(run: RunDir, config: RunConfig) -> None:
    """Raise TrainingStoppedError where an alarm stopped the training of `run`, as long as
    `grpo.stop_on_alarm` is set: a repeated start makes nothing good that was not."""
    record = run.read(run.training)
    if record is not None and record["stopped"] and config.grpo.stop_on_alarm:
        raise stopped_by_alarm(run, record["stopped"])


def stopped_by_alarm(run: RunDir, stopped: Mapping[str, Any]) -> TrainingStoppedError:
    """The error for a training that `stopped`, an alarm and its step, ended."""
    return TrainingStoppedError(
        f"training was stopped at step {stopped['step']} by the alarm {stopped['alarm']} "
        f"(grpo.stop_on_alarm); {run.alarms} says what it saw, and {run.adapter} holds what was "
        "trained until then. Remove the cause in a new run, or start this one again with "
        "grpo.stop_on_alarm=false to go on."
    )


class TrainingRecord:
    """The record of a run while this process trains it; made where its time starts to count.

    `train_runtime_s` adds up all processes that trained the run, the warm start included: one that
    was killed counts up to its last write here, which is after the warm start and after every step.
    `resumed_at` holds, for each process after the first, the step it went on from.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._started = time.monotonic()
        before = run.read(run.training)
        self._is_new = before is None
        self._earlier_s: float = 0.0 if before is None else before["train_runtime_s"]
        self._resumed_at: list[int] = [] if before is None else list(before["resumed_at"])

    def go_on_from(self, step: int) -> None:
        """Note the step of the checkpoint that this process starts from; 0 where there is none."""
        if not self._is_new:
            self._resumed_at.append(step)

    def write(
        self,
        history: Sequence[dict[str, Any]],
        *,
        finished: bool = False,
        stopped: dict[str, Any] | None = None,
    ) -> Record:
        """Write training.json after the steps in TRL's log `history`, and return its content."""
        rewarded = [record for record in history if "reward" in record]
        seconds = self._earlier_s + time.monotonic() - self._started
        record = strict_json.finite(
            {
                "finished": finished,
                "steps": history[-1]["step"] if history else 0,
                "train_runtime_s": round(seconds, 1),
                "resumed_at": self._resumed_at,
                "stopped": stopped,
                "first": _reward_and_accuracy(rewarded[:1]),
                "final": _reward_and_accuracy(rewarded[-1:]),
            }
        )
        if writes_records():
            strict_json.write(self._run.training, record)
        return dict(record)


def _reward_and_accuracy(records: list[dict[str, Any]]) -> dict[str, float | None]:
    record = records[0] if records else {}
    return {name: record.get(name) for name in ("reward", "accuracy")}
