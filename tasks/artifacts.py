"""What the Prefect UI shows of a run: progress, the table of results, where everything is.

Artifacts are for watching. A failure to make one is logged and never ends the work it describes.
"""

from __future__ import annotations

import contextvars
import re
import threading
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
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from subtext import strict_json
from subtext.evaluation.official_folds import PROTOCOL
from subtext.fold_tables import folds_markdown
from subtext.markdown import escaped, markdown_table
from subtext.plan.plan import Plan
from subtext.plan.tables import plan_markdown
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
_LIMIT_S = 10.0


class PrefectProgress:
    """A watcher: one progress artifact a stage, and about twenty log lines.

    Artifacts are made by a thread, of the newest step only: an API that is gone holds each call for
    a minute, which the work that is watched must not wait for.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._logger = get_run_logger()
        self._artifacts: dict[str, UUID] = {}
        self._updated_at = 0.0
        self._seen: tuple[str, int] | None = None
        self._n_logged: dict[str, int] = {}
        self._due: dict[str, Progress] = {}  # the newest of each stage
        self._changed = threading.Condition()
        self._closing = False
        self._lost = False
        # an artifact belongs to the run in whose context it is made
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(self._work,), name="progress", daemon=True
        ).start()

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
            with self._changed:
                self._due[progress.stage] = progress
                self._changed.notify_all()

    def close(self, limit_s: float = 5.0) -> None:
        """Wait until the last step is shown, `limit_s` seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._due, limit_s)
            self._closing = True
            self._changed.notify_all()

    def _work(self) -> None:
        # One retry: when the server is back, the newest step is due, not one that it missed.
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 1}):
            while self._show_newest():
                pass

    def _show_newest(self) -> bool:
        """Show one stage's newest step, once there is one; False when there is no more to do."""
        with self._changed:
            self._changed.wait_for(lambda: self._due or self._closing)
            if self._closing:
                return False
            stage, progress = next(iter(self._due.items()))
        error = _error_of(lambda: self._update(progress))
        with self._changed:
            if error is None:
                self._lost = False
                if self._due[stage] is progress:
                    del self._due[stage]
            elif not self._closing:
                if not self._lost:
                    self._logger.warning("The Prefect UI misses progress: %r", error)
                self._lost = True
                self._changed.wait_for(lambda: self._closing, _SECONDS_BETWEEN_UPDATES)
            self._changed.notify_all()
        return True

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


def show_plan(plan: Plan) -> None:
    """Publish what the training would need and take, and what is wrong."""
    quietly(lambda: create_markdown_artifact(plan_markdown(plan), "plan", "Before training"))


def show_evaluation(run: RunDir) -> None:
    """Publish the verdict, and the tables of passes, comparisons and altered prompts."""

    def make() -> None:
        evaluation = read_evaluation(run)
        rows = [dict(zip(PASS_COLUMNS, row, strict=True)) for row in pass_rows(evaluation)]
        create_table_artifact(rows, "results", f"Held-out clips of {run.run_id}")
        parts = [
            f"**{escaped(evaluation['verdict'])}**",
            "\n".join(f"- {escaped(doubt)}" for doubt in doubts(evaluation)),
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
            f"- {'passed' if item['passed'] else '**failed**'}: {escaped(item['text'])}"
            for item in gate["reasons"]
        )
        decision = escaped(gate_sentence(gate))
        create_markdown_artifact(f"**{decision}**\n\n{reasons}", "gate", "Champion?")

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
        create_table_artifact(rows, "leaks", escaped(leak_sentence(run)))

    quietly(make)


def show_places(run: RunDir) -> None:
    """Publish where the run directory, MLflow run, registered version and Hub files are."""

    def make() -> None:
        table = markdown_table(("what", "where"), place_rows(run))
        create_markdown_artifact(table, "places", f"Where {run.run_id} is")

    quietly(make)


def quietly(make: Callable[[], Any]) -> None:
    """Call `make`, for `_LIMIT_S` seconds at most; what goes wrong becomes a warning in the log.

    Prefect's client tries for minutes to reach a server that is gone. `make` goes on trying beside
    the work, and the artifact comes late, or never.
    """
    logger, late = get_run_logger(), threading.Event()

    def attempt() -> None:
        error = _error_of(make)
        if error is not None and not late.is_set():
            logger.warning("The Prefect UI misses an artifact: %r", error)

    # an artifact belongs to the run in whose context it is made
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(attempt,), name="artifact", daemon=True)
    thread.start()
    thread.join(_LIMIT_S)
    if thread.is_alive():
        late.set()
        logger.warning("The Prefect server does not answer; an artifact will be late, or missing.")


def _error_of(make: Callable[[], Any]) -> Exception | None:
    try:
        make()
    except Exception as error:
        return error
    return None
