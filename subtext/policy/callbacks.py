"""What happens beside TRL's loop: records on disk after every step, news for the watcher, and a
last step that can be saved whenever a signal comes."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from subtext import strict_json
from subtext.policy.ranks import any_rank, n_ranks
from subtext.policy.training_record import TrainingRecord
from subtext.progress import Progress, Stage, Watcher, finite_metrics
from subtext.run_dir import RunDir
from subtext.signals import DeferredSignals


class TellWatcher(TrainerCallback):
    """Pass every log record on as `Progress`, its metrics named `prefix/name`."""

    def __init__(self, watcher: Watcher, stage: Stage, prefix: str) -> None:
        self._watcher = watcher
        self._stage = stage
        self._prefix = prefix

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        metrics = finite_metrics(self._prefix, logs or {})
        self._watcher(Progress(self._stage, state.global_step, state.max_steps, metrics))


class KeepRecords(TrainerCallback):
    """Write trainer state, log history (strict JSON) and training.json at every log, the adapter at
    every save.

    So a step that fails later costs no record of the steps before it.
    """

    def __init__(
        self, run: RunDir, save_adapter: Callable[[], None], record: TrainingRecord
    ) -> None:
        self._run = run
        self._save_adapter = save_adapter
        self._record = record

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            write_records(self._run, state)
        self._record.write(state.log_history)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.save(state)

    def save(self, state: TrainerState) -> None:
        """Write adapter, trainer state and log history as they are now, in the first rank."""
        if not state.is_world_process_zero:
            return
        self._save_adapter()
        # TRL has left a model card there that names neither base nor data; ours comes later.
        self._run.model_card.unlink(missing_ok=True)
        write_records(self._run, state)


class KeepLastStep(TrainerCallback):
    """Signals wait from an optimiser's update until the next step begins: whatever interrupts
    training, weights, optimiser and logs are of one finished step.

    `rewind` makes them a checkpoint's worth: by the time a signal comes, generation has moved the
    random numbers and the count of tokens on.
    """

    def __init__(self, signals: DeferredSignals, saved_step: int) -> None:
        self.saved_step = saved_step
        self._signals = signals
        self._tokens: float = 0
        self._random: dict[str, Any] = {}

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Several ranks answer a signal together and only here: one that left alone would keep the
        others waiting for its part of the step."""
        if n_ranks() == 1:
            self._signals.release()
        elif any_rank(self._signals.waiting):
            self._signals.leave()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._signals.hold()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._tokens = state.num_input_tokens_seen
        self._random = {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "cpu": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        }

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.saved_step = state.global_step

    def rewind(self, state: TrainerState) -> None:
        """Put random numbers and `state` back to where the last step of this process ended."""
        state.num_input_tokens_seen = self._tokens
        random.setstate(self._random["python"])
        np.random.set_state(self._random["numpy"])
        torch.set_rng_state(self._random["cpu"])
        if self._random["cuda"] is not None:
            torch.cuda.set_rng_state(self._random["cuda"])


def write_records(run: RunDir, state: TrainerState) -> None:
    """Write `trainer_state.json` and `log_history.json`; a NaN becomes null."""
    strict_json.write(run.trainer_state, strict_json.finite(dataclasses.asdict(state)))
    strict_json.write(run.log_history, strict_json.finite(state.log_history))
