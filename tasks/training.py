"""Train, and let MLflow, the terminal and the Prefect UI watch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import INPUTS, RUN_ID
from prefect.logging import get_run_logger

from subtext.errors import TrackingError
from subtext.progress import Progress
from subtext.run_dir import RunDir
from subtext.tracking import MetricWriter, mlflow_run_id
from tasks.watching import watched


# Keyed on flow run and path: a retried flow run reads the stored result, it does not train again.
@task(name="train", cache_policy=RUN_ID + INPUTS, persist_result=True, result_serializer="json")
def train(run_path: str) -> dict[str, Any]:
    """Train the policy of a run; return steps, seconds and first and final reward."""
    from subtext.policy.train import train_policy

    run = RunDir(Path(run_path))
    writer = MetricWriter(mlflow_run_id(run))
    with watched(run.run_id) as show:

        def watch(progress: Progress) -> None:
            writer.write(progress.step, progress.metrics)
            show(progress)

        try:
            return train_policy(run, watch)
        finally:
            _close(writer)


def _close(writer: MetricWriter) -> None:
    """Send what MLflow has not had yet. A finished training is worth more than its curves, which
    log_history.json keeps; that MLflow is gone is said again by the next step that needs it."""
    try:
        writer.close()
    except TrackingError as error:
        get_run_logger().warning("MLflow lacks some metrics of training: %s", error)
