"""How far a stage has come: what training and evaluation tell whoever watches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Self

from tqdm.auto import tqdm

Stage = str
"""`fetch`, `unpack`, `measure`, `pivot`, `warm_start`, `grpo`, or `judge <pass>`."""

_UNITS: Mapping[Stage, str] = {
    "fetch": "bytes",
    "unpack": "files",
    "pivot": "foldings",
    "warm_start": "steps",
    "grpo": "steps",
}


def unit_of(stage: Stage) -> str:
    """What a stage's steps are: clips, unless it says otherwise."""
    return _UNITS.get(stage, "clips")


@dataclass(frozen=True)
class Progress:
    """`step` of `max_steps` is done, counted in `unit_of(stage)`.

    `metrics` holds finite numbers by name, such as `train/reward`; names carry the stage, so that
    one tracking run can hold them all.
    """

    stage: Stage
    step: int
    max_steps: int
    metrics: Mapping[str, float] = field(default_factory=dict)


Watcher = Callable[[Progress], None]


def nobody(progress: Progress) -> None:
    """The watcher that does not look."""


def finite_metrics(prefix: str, logs: Mapping[str, object]) -> dict[str, float]:
    """Keep the finite numbers of a trainer's log record, named `prefix/name`."""
    return {
        f"{prefix}/{name}": float(value)
        for name, value in logs.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


class TerminalBar:
    """A watcher that draws one progress bar a stage on a terminal, and nothing elsewhere.

    A context manager: leaving it closes the bar that is open.
    """

    _SHOWN: ClassVar = {
        "train/reward": "reward",
        "train/accuracy": "acc",
        "warm_start/loss": "loss",
    }

    def __init__(self) -> None:
        self._bar: Any = None
        self._stage: Stage | None = None

    def __call__(self, progress: Progress) -> None:
        if progress.stage != self._stage or self._bar is None:
            self.close()
            self._stage = progress.stage
            # `disable=None` silences the bar where standard error is no terminal.
            self._bar = tqdm(
                total=progress.max_steps,
                desc=progress.stage.replace("_", " "),
                disable=None,
                unit="B" if unit_of(progress.stage) == "bytes" else f" {unit_of(progress.stage)}",
                unit_scale=unit_of(progress.stage) == "bytes",
            )
        shown = {
            short: f"{progress.metrics[name]:.3f}"
            for name, short in self._SHOWN.items()
            if name in progress.metrics
        }
        if shown:
            self._bar.set_postfix(shown, refresh=False)
        self._bar.update(progress.step - self._bar.n)

    def close(self) -> None:
        """Leave the bar where it is and start a fresh one next time."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
