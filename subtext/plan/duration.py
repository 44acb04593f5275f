"""How long a run will take, from what earlier runs on this machine took.

    training = seconds a step x grpo.max_steps + seconds outside the steps
    judging  = answers / completions a step and process x seconds a step

Seconds a step: the median over TRL's `step_time` in the log history of the runs in
training.runs_dir with the same base, device, number format, batch and processes, each scaled by the
longest completions allowed (now / then), since generating is most of a step. Outside the steps lie
loading, warm start and checkpoints: the median of train_runtime_s less the steps, of runs that were
finished in one go with the same warm start. Judging also generates, in one process, without the
backward pass, and stops at the end of an answer, so that its figure is an upper bound for the
passes of the run itself; a champion's pass is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from subtext.config import RunConfig
from subtext.errors import DataError, MachineError
from subtext.policy.precision import MachineFacts, Precision, choose_precision
from subtext.run_dir import RunDir, load_config

_MIN_TRAIN_STEPS = 3
_MEASURE = (
    f"nothing like it was trained on this machine yet: train {_MIN_TRAIN_STEPS} steps first with "
    f"--set grpo.max_steps={_MIN_TRAIN_STEPS}"
)


@dataclass(frozen=True)
class Duration:
    """Predicted seconds, None where nothing was measured; `basis` says from what, or what to do."""

    seconds: float | None
    train_s: float | None
    judge_s: float | None
    step_s: float | None
    n_steps_measured: int
    run_ids: tuple[str, ...]
    basis: str

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "run_ids": list(self.run_ids)}

    def cost(self, price_per_hour: float) -> float | None:
        """US dollars, None without a duration or without a price (0)."""
        if self.seconds is None or not price_per_hour:
            return None
        return round(self.seconds / 3600 * price_per_hour, 4)


@dataclass(frozen=True)
class _Measured:
    run_id: str
    step_s: list[float]
    outside_s: float | None


def predict_duration(
    runs_dir: Path, config: RunConfig, precision: Precision, facts: MachineFacts, n_answers: int
) -> Duration:
    """Predict for `config`; `n_answers` are those that will be judged, all passes together."""
    measured = list(_measured(runs_dir, config, precision, facts))
    steps = [seconds for each in measured for seconds in each.step_s]
    if not steps:
        return Duration(None, None, None, None, 0, (), _MEASURE)
    step_s = median(steps)
    outside = [each.outside_s for each in measured if each.outside_s is not None]
    train_s = step_s * config.grpo.max_steps + (median(outside) if outside else 0.0)
    n_in_a_process = config.completions_per_step / config.training.num_processes
    judge_s = step_s * n_answers / n_in_a_process
    run_ids = tuple(sorted(each.run_id for each in measured))
    basis = f"the median of {len(steps)} steps of {_named(run_ids)}"
    if config.warm_start.steps and not outside:
        basis += "; loading and warm start were not measured and are not counted"
    return Duration(
        round(train_s + judge_s, 1), round(train_s, 1), round(judge_s, 1), round(step_s, 3),
        len(steps), run_ids, basis,
    )  # fmt: skip


def _named(run_ids: tuple[str, ...]) -> str:
    return run_ids[0] if len(run_ids) == 1 else f"{len(run_ids)} runs, for example {run_ids[-1]}"


def _measured(
    runs_dir: Path, config: RunConfig, precision: Precision, facts: MachineFacts
) -> Iterator[_Measured]:
    for run in map(RunDir, sorted(runs_dir.glob("*"))):
        if not run.log_history.exists():
            continue
        try:
            before, history = load_config(run), run.require(run.log_history)
            training = run.read(run.training)
            same = _batch_of(before, choose_precision(facts, before.model)) == _batch_of(
                config, precision
            )
        except (DataError, MachineError):  # of another version or machine: no measure of this one
            continue
        if not same:
            continue
        longer = config.grpo.max_completion_length / before.grpo.max_completion_length
        seconds = [record["step_time"] for record in history if record.get("step_time")]
        if seconds:
            outside = _outside(training, sum(seconds), before, config)
            yield _Measured(run.run_id, [longer * each for each in seconds], outside)


def _batch_of(config: RunConfig, precision: Precision) -> tuple[Any, ...]:
    """What the time of a step depends on."""
    training, lora = config.training, config.lora
    return (
        (config.model.source, config.model.name, config.model.revision),
        (precision.device, precision.dtype, precision.quantization),
        (training.per_device_train_batch_size, training.gradient_accumulation_steps),
        (training.num_processes, training.gradient_checkpointing),
        (config.grpo.num_generations, config.grpo.num_iterations, bool(config.grpo.beta)),
        (lora.r, sorted(lora.target_modules)),
    )


def _outside(
    training: Mapping[str, Any] | None, steps_s: float, before: RunConfig, config: RunConfig
) -> float | None:
    """Seconds that a run finished in one go spent outside its steps; None for another one."""
    warm, warm_before = config.warm_start, before.warm_start
    if training is None or not training["finished"] or training["resumed_at"]:
        return None
    if (warm.steps, warm.batch_size) != (warm_before.steps, warm_before.batch_size):
        return None
    return max(0.0, float(training["train_runtime_s"]) - steps_s)
