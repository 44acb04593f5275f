"""Alarms while training runs: told once, kept with the run and, where asked for, an end to it."""

from __future__ import annotations

import logging
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from subtext import strict_json
from subtext.config import RunConfig
from subtext.evaluation.alarms import alarms_so_far, window_steps
from subtext.run_dir import RunDir

logger = logging.getLogger(__name__)


class WatchAlarms(TrainerCallback):
    """Look for alarms at every log; `subtext.evaluation.alarms` says what they are.

    alarms.json keeps each at its first sight, also over a resumed training, as `name`, `message`
    and `step`. With `grpo.stop_on_alarm` training ends at the first step that has one, with a
    checkpoint, and `stopped` says which: `{"alarm": name, "step": step}`, otherwise None.
    """

    def __init__(self, run: RunDir, config: RunConfig) -> None:
        self.stopped: dict[str, Any] | None = None
        self._run = run
        self._config = config
        self._window = window_steps(config.prompts_per_step)
        self._seen: list[dict[str, Any]] = run.read(run.alarms, [])

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        alarms = alarms_so_far(state.log_history, self._config.gate, self._window)
        if state.is_world_process_zero:
            self._keep(alarms, state.global_step)
        if alarms and self._config.grpo.stop_on_alarm and not self.stopped:
            self.stopped = {"alarm": alarms[0]["name"], "step": state.global_step}
            control.should_training_stop = True
            control.should_save = True

    def _keep(self, alarms: list[dict[str, str]], step: int) -> None:
        known = {alarm["name"] for alarm in self._seen}
        new = [{**alarm, "step": step} for alarm in alarms if alarm["name"] not in known]
        if new:
            self._seen += new
            strict_json.write(self._run.alarms, self._seen)
        for alarm in new:
            logger.warning("alarm at step %d, %s: %s", step, alarm["name"], alarm["message"])
