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
from subtext.errors import SubtextError, TrackingError, TrainingStoppedError
from subtext.publishing.uploads import missing_uploads
from subtext.run_dir import RunDir, load_config
from subtext.run_lock import working_on
from tasks.artifacts import show_gate, show_places
from tasks.dead_runs import crash_flow_runs
from tasks.library_log import library_log

_RETRIES = 2
_DELAY_S = 5


@task(name="start tracking", cache_policy=NO_CACHE)
def start_tracking(run_path: str) -> str:
    """Start the MLflow run, or resume the one there is; return its id.

    Runs that dead processes of this machine left running are ended first, in MLflow and Prefect.
    """
    run = _run(run_path)
    with library_log():
        try:
            crash_flow_runs(tracking.end_dead_runs(run))
        except SubtextError as error:
            get_run_logger().warning("What dead processes left running stays so. %s", error)
    return tracking.start_run(run, flow_run.get_id() or "", flow_run.get_name() or "")


@task(name="log results", cache_policy=NO_CACHE, retries=_RETRIES, retry_delay_seconds=_DELAY_S)
def log_results(run_path: str) -> list[str]:
    """Log the metrics of training that MLflow lacks, the evaluation and the files of the run
    directory; return the files' names."""
    run = _run(run_path)
    tracking.send_metrics(run)
    tracking.log_evaluation(run)
    return tracking.log_artifacts(run)


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
    return _gate(run_path)


@task(name="gate", cache_policy=NO_CACHE, retries=_RETRIES, retry_delay_seconds=_DELAY_S)
def pass_gate_once(run_path: str) -> dict[str, Any]:
    """As `pass_gate`, unless a decision on the version is on record: that one stands."""
    decision = tracking.recorded_gate(_run(run_path))
    return _gate(run_path) if decision is None else decision


def _gate(run_path: str) -> dict[str, Any]:
    run = _run(run_path)
    decision = tracking.apply_gate(run)
    show_gate(run)
    return decision


@task(name="finish", cache_policy=NO_CACHE, retries=_RETRIES, retry_delay_seconds=_DELAY_S)
def finish(run_path: str) -> None:
    """Pin the commits of what was uploaded in MLflow, and show where everything is."""
    run = _run(run_path)
    tracking.tag_commits(run, missing_uploads(run, load_config(run).publish))
    tracking.log_artifacts(run)  # once more: published.json is new
    show_places(run)


@contextmanager
def tracked(run_path: str) -> Iterator[None]:
    """Have the run directory to this process, and an MLflow run that ends as the block ends:
    FINISHED, FAILED, or KILLED by a signal."""
    with working_on(_run(run_path)), _mlflow_run(run_path):
        yield


@contextmanager
def _mlflow_run(run_path: str) -> Iterator[None]:
    try:
        start_tracking(run_path)
        yield
    except (ExternalSignal, KeyboardInterrupt):
        # No task from here on: Prefect gives a cancelled process seconds.
        _end_unfinished(run_path, "KILLED")
        raise
    except TrainingStoppedError as error:
        _end_unfinished(run_path, "FAILED", str(error))
        raise
    except BaseException:
        _end_unfinished(run_path, "FAILED")
        raise
    tracking.end_run(_run(run_path), "FINISHED")


def _end_unfinished(
    run_path: str, status: Literal["FAILED", "KILLED"], stopped_by_alarm: str = ""
) -> None:
    """End the MLflow run; what ended the work stays the error that is seen."""
    try:
        tracking.end_run(_run(run_path), status, stopped_by_alarm)
    except TrackingError as error:
        get_run_logger().warning(
            "MLflow still shows the run as running, until the next start on this machine: %s", error
        )


def _run(run_path: str) -> RunDir:
    return RunDir(Path(run_path))
