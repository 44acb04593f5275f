"""Keep the MLflow run of a flow run: started before training, ended with what really happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import ExternalSignal
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from subtext import tracking
from subtext.errors import TrackingError
from subtext.run_dir import RunDir
from tasks.artifacts import show_gate, show_places

_RETRIES = 2
_DELAY_S = 5


@task(name="start tracking", cache_policy=NO_CACHE)
def start_tracking(run_path: str) -> str:
    """Start the MLflow run, or resume it when the flow run is retried; return its id."""
    return tracking.start_run(_run(run_path), flow_run.get_id() or "", flow_run.get_name() or "")


@task(name="log results", cache_policy=NO_CACHE, retries=_RETRIES, retry_delay_seconds=_DELAY_S)
def log_results(run_path: str) -> list[str]:
    """Log the evaluation and the files of the run directory; return the files' names."""
    tracking.log_evaluation(_run(run_path))
    return tracking.log_artifacts(_run(run_path))


@task(name="log folds", cache_policy=NO_CACHE, retries=_RETRIES, retry_delay_seconds=_DELAY_S)
def log_folds(run_paths: list[str], pooled: str) -> str:
    """Keep the file in which five folds are pooled as an MLflow run; return the run's id."""
    return tracking.log_folds([_run(run_path) for run_path in run_paths], Path(pooled))


@task(name="register", cache_policy=NO_CACHE, retries=_RETRIES, retry_delay_seconds=_DELAY_S)
def register(run_path: str) -> dict[str, Any]:
    """Register the adapter as a model version, once for a run; return name, version and alias."""
    return tracking.register_version(_run(run_path))


@task(name="gate", cache_policy=NO_CACHE, retries=_RETRIES, retry_delay_seconds=_DELAY_S)
def pass_gate(run_path: str) -> dict[str, Any]:
    """Decide whether the version becomes the champion; return the decision and its reasons."""
    decision = tracking.apply_gate(_run(run_path))
    show_gate(_run(run_path))
    return decision


@task(name="finish", cache_policy=NO_CACHE, retries=_RETRIES, retry_delay_seconds=_DELAY_S)
def finish(run_path: str) -> None:
    """Pin the commits of what was uploaded in MLflow, and show where everything is."""
    tracking.tag_commits(_run(run_path))
    tracking.log_artifacts(_run(run_path))  # once more: published.json is new
    show_places(_run(run_path))


@contextmanager
def tracked(run_path: str) -> Iterator[None]:
    """Start the MLflow run; end it as the block ends: FINISHED, FAILED, or KILLED by a signal."""
    start_tracking(run_path)
    try:
        yield
    except (ExternalSignal, KeyboardInterrupt):
        # No task from here on: Prefect gives a cancelled process seconds.
        _end_unfinished(run_path, "KILLED")
        raise
    except BaseException:
        _end_unfinished(run_path, "FAILED")
        raise
    tracking.end_run(_run(run_path), "FINISHED")


def _end_unfinished(run_path: str, status: Literal["FAILED", "KILLED"]) -> None:
    """End the MLflow run; what ended the work stays the error that is seen."""
    try:
        tracking.end_run(_run(run_path), status)
    except TrackingError as error:
        get_run_logger().warning("MLflow still shows the run as running: %s", error)


def _run(run_path: str) -> RunDir:
    return RunDir(Path(run_path))
