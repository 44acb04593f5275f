"""What the Prefect UI shows of a run: progress, the table of results, where everything is.

Artifacts are for watching. A failure to make one is logged and never ends the work it describes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.logging import get_run_logger

from subtext import strict_json
from subtext.evaluation.official_folds import PROTOCOL
from subtext.fold_tables import folds_markdown
from subtext.markdown import markdown_table
from subtext.progress import Progress, unit_of
from subtext.result_tables import (
    ABLATION_COLUMNS,
    AGAINST_COLUMNS,
    LEAK_COLUMNS,
    PASS_COLUMNS,
    ablation_rows,
    against_rows,
    doubts,
    gate_sentence,
    leak_rows,
    leak_sentence,
    pass_rows,
    read_evaluation,
)
from subtext.run_dir import RunDir
from subtext.summary import mlflow_link, place_rows

_LOGGED = ("reward", "accuracy", "loss")
_LOG_LINES_A_STAGE = 20
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
            f"{progress.stage} of {self._run_id}: {progress.max_steps} {unit_of(progress.stage)}",
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


def show_evaluation(run: RunDir) -> None:
    """Publish the verdict, and the tables of passes, comparisons and altered prompts."""

    def make() -> None:
        evaluation = read_evaluation(run)
        rows = [dict(zip(PASS_COLUMNS, row, strict=True)) for row in pass_rows(evaluation)]
        create_table_artifact(rows, "results", f"Held-out clips of {run.run_id}")
        parts = [
            f"**{evaluation['verdict']}**",
            "\n".join(f"- {doubt}" for doubt in doubts(evaluation)),
            markdown_table(PASS_COLUMNS, pass_rows(evaluation)),
            markdown_table(AGAINST_COLUMNS, against_rows(evaluation)),
            markdown_table(ABLATION_COLUMNS, ablation_rows(evaluation)),
            f"MLflow: {mlflow_link(run)}",
        ]
        markdown = "\n\n".join(part for part in parts if part)
        create_markdown_artifact(markdown, "verdict", f"What {run.run_id} shows")

    quietly(make)


def show_gate(run: RunDir) -> None:
    """Publish the gate's decision with every reason."""

    def make() -> None:
        gate = run.require(run.gate)
        # No table: its last column, the reasons, would lie outside of the UI's panel.
        reasons = "\n".join(
            f"- {'passed' if item['passed'] else '**failed**'}: {item['text']}"
            for item in gate["reasons"]
        )
        create_markdown_artifact(f"**{gate_sentence(gate)}**\n\n{reasons}", "gate", "Champion?")

    quietly(make)


def show_folds(path: Path) -> None:
    """Publish what the official folds show, beside the paper's table where that compares."""

    def make() -> None:
        create_markdown_artifact(folds_markdown(strict_json.read(path)), "folds", PROTOCOL)

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


def quietly(make: Callable[[], Any]) -> None:
    """Call `make`; whatever goes wrong becomes a warning in the run's log."""
    try:
        make()
    except Exception as error:
        get_run_logger().warning("The Prefect UI misses an artifact: %r", error)
