"""MLflow: one run per flow run, its metrics and artifacts, and the registered model version.

Everything goes through `MlflowClient` with explicit run ids: MLflow's active run is thread-local,
and in a worker thread the fluent functions would silently open a second run.
Importing this package loads no MLflow.
"""

from subtext.tracking.champion import (
    champion_overview,
    current_champion,
    move_champion,
    undo_champion,
)
from subtext.tracking.commits import tag_commits
from subtext.tracking.evaluation import log_evaluation
from subtext.tracking.folds import log_folds
from subtext.tracking.judging import judge_champion, judge_model
from subtext.tracking.metric_writer import MetricWriter, send_metrics
from subtext.tracking.models import load_judge, model_prompt
from subtext.tracking.promotion import apply_gate, recorded_gate
from subtext.tracking.reconcile import end_dead_runs
from subtext.tracking.registry import register_version
from subtext.tracking.runs import (
    end_run,
    log_artifacts,
    mlflow_run_id,
    start_run,
)
from subtext.tracking.store import check_reachable, tracking_uri

__all__ = [
    "MetricWriter",
    "apply_gate",
    "champion_overview",
    "check_reachable",
    "current_champion",
    "end_dead_runs",
    "end_run",
    "judge_champion",
    "judge_model",
    "load_judge",
    "log_artifacts",
    "log_evaluation",
    "log_folds",
    "mlflow_run_id",
    "model_prompt",
    "move_champion",
    "recorded_gate",
    "register_version",
    "send_metrics",
    "start_run",
    "tag_commits",
    "tracking_uri",
    "undo_champion",
]
