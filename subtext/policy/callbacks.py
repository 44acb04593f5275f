"""What happens beside TRL's loop: records on disk after every save, and news for the watcher."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from subtext import strict_json
from subtext.progress import Progress, Stage, Watcher, finite_metrics
from subtext.run_dir import RunDir


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
    """Write trainer state and log history (strict JSON) at every log, the adapter at every save.

    So a step that fails later costs no record of the steps before it.
    """

    def __init__(self, run: RunDir, save_adapter: Callable[[], None]) -> None:
        self._run = run
        self._save_adapter = save_adapter

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        write_records(self._run, state)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._save_adapter()
        # TRL has left a model card there that names neither base nor data; ours comes later.
        self._run.model_card.unlink(missing_ok=True)
        write_records(self._run, state)


def write_records(run: RunDir, state: TrainerState) -> None:
    """Write `trainer_state.json` and `log_history.json`; a NaN becomes null."""
    strict_json.write(run.trainer_state, strict_json.finite(dataclasses.asdict(state)))
    strict_json.write(run.log_history, strict_json.finite(state.log_history))
