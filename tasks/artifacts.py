"""What the Prefect UI shows of a run: progress, the table of results, where everything is.

Artifacts are for watching. A failure to make one is logged and never ends the work it describes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.logging import get_run_logger

from subtext.progress import UNITS, Progress
from subtext.run_dir import RunDir
from subtext.summary import (
    LEAK_COLUMNS,
    PASS_COLUMNS,
    leak_rows,
    leak_sentence,
    pass_rows,
    place_rows,
)

_LOGGED = ("reward", "accuracy", "loss")
_LOG_LINES_A_STAGE = 20
_ESCAPED_BAR = r"\|"
_SECONDS_BETWEEN_UPDATES = 2.0


class PrefectProgress:
    """A watcher: one progress artifact a stage, and about twenty log lines."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._logger = get_run_logger()
        self._artifacts: dict[str, UUID] = {}
        self._updated_at = 0.0
        self._seen: tuple[str, int] | None = None
        self._n_logged: dict[str, int] = {}

    def __call__(self, progress: Progress) -> None:
        if (progress.stage, progress.step) == self._seen:
            return  # a trainer's closing record repeats the last step
        self._seen = (progress.stage, progress.step)
        last = progress.step >= progress.max_steps
        n_due = _LOG_LINES_A_STAGE * progress.step // max(1, progress.max_steps)
        if last or n_due > self._n_logged.get(progress.stage, 0):
            self._n_logged[progress.stage] = n_due
            self._logger.info(progress_line(progress))
        # A SQLite server locks up under an update a step.
        if last or time.monotonic() - self._updated_at > _SECONDS_BETWEEN_UPDATES:
            self._updated_at = time.monotonic()
            quietly(lambda: self._update(progress))

    def _update(self, progress: Progress) -> None:
        percent = 100.0 * progress.step / max(1, progress.max_steps)
        known = self._artifacts.get(progress.stage)
        if known is not None:
            update_progress_artifact(known, progress=percent)
            return
        made = create_progress_artifact(
            percent,
            artifact_key(f"{progress.stage} progress"),
            f"{progress.stage} of {self._run_id}: {progress.max_steps} {UNITS[progress.stage]}",
        )
        assert isinstance(made, UUID)  # a coroutine only where the caller is one
        self._artifacts[progress.stage] = made


def progress_line(progress: Progress) -> str:
    """`grpo 3/60: reward 0.412, accuracy 0.5`; MLflow has all the metrics."""
    metrics = {name.rpartition("/")[2]: value for name, value in progress.metrics.items()}
    shown = ", ".join(f"{name} {metrics[name]:.3g}" for name in _LOGGED if name in metrics)
    done = f"{progress.stage} {progress.step}/{progress.max_steps}"
    return f"{done}: {shown}" if shown else done


def artifact_key(text: str) -> str:
    """Return `text` as the lowercase letters, digits and dashes that Prefect accepts."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def show_results(run: RunDir) -> None:
    """Publish the table of passes as an artifact."""

    def make() -> None:
        rows = [dict(zip(PASS_COLUMNS, row, strict=True)) for row in pass_rows(run)]
        create_table_artifact(rows, "results", f"Held-out clips of {run.run_id}")

    quietly(make)


def show_leaks(run: RunDir) -> None:
    """Publish what the split leaks: trivial predictors on the held-out clips, and the overlap."""

    def make() -> None:
        rows = [dict(zip(LEAK_COLUMNS, row, strict=True)) for row in leak_rows(run)]
        create_table_artifact(rows, "leaks", leak_sentence(run))

    quietly(make)


def show_places(run: RunDir) -> None:
    """Publish where the run directory, MLflow run, registered version and Hub files are."""

    def make() -> None:
        table = markdown_table(("what", "where"), place_rows(run))
        create_markdown_artifact(table, "places", f"Where {run.run_id} is")

    quietly(make)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown; "|" inside a cell, which would end it, is escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', _ESCAPED_BAR) for cell in line)} |" for line in lines
    )


def quietly(make: Callable[[], Any]) -> None:
    """Call `make`; whatever goes wrong becomes a warning in the run's log."""
    try:
        make()
    except Exception as error:
        get_run_logger().warning("The Prefect UI misses an artifact: %r", error)
