"""MLflow: one run per flow run, its metrics and artifacts, and the registered model version.

Everything goes through `MlflowClient` with explicit run ids: MLflow's active run is thread-local,
and in a worker thread the fluent functions would silently open a second run.
Importing this package loads no MLflow.
"""

from subtext.tracking.commits import tag_commits
from subtext.tracking.metric_writer import MetricWriter
from subtext.tracking.registry import register_version
from subtext.tracking.runs import (
    end_run,
    log_artifacts,
    log_evaluation,
    mlflow_run_id,
    start_run,
)
from subtext.tracking.store import check_reachable, tracking_uri

__all__ = [
    "MetricWriter",
    "check_reachable",
    "end_run",
    "log_artifacts",
    "log_evaluation",
    "mlflow_run_id",
    "register_version",
    "start_run",
    "tag_commits",
    "tracking_uri",
]
