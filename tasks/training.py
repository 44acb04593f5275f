"""Train, and let MLflow, the terminal and the Prefect UI watch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from subtext.errors import TrackingError
from subtext.progress import Progress
from subtext.run_dir import RunDir
from subtext.tracking import MetricWriter
from tasks.watching import watched

_SENDING_S = 20.0
_SENDING_WHEN_STOPPED_S = 2.0  # Prefect gives a cancelled process seconds


# No result is kept by Prefect: what is finished is read from training.json, in any later flow run.
@task(name="train", cache_policy=NO_CACHE)
def train(run_path: str) -> dict[str, Any]:
    """Train the policy of a run, or go on where it stopped; return steps, seconds and first and
    final reward. A training that finished before is not repeated."""
    from subtext.policy.train import train_policy

    run = RunDir(Path(run_path))
    writer = MetricWriter(run)
    sending_s = _SENDING_WHEN_STOPPED_S
    with watched(run.run_id) as show:

        def watch(progress: Progress) -> None:
            writer.write(progress.step, progress.metrics)
            show(progress)

        try:
            summary = train_policy(run, watch)
            sending_s = _SENDING_S
            return summary
        finally:
            _close(writer, sending_s)


def _close(writer: MetricWriter, limit_s: float) -> None:
    """Send what MLflow has not had yet. A finished training is worth more than its curves, which
    the run directory keeps; `log results` sends them, or says that MLflow is gone."""
    try:
        writer.close(limit_s)
    except TrackingError as error:
        get_run_logger().warning("MLflow lacks some metrics of training: %s", error)
