"""The pooled official folds as an MLflow run of their own, beside those of the five folds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from subtext import strict_json
from subtext.evaluation.baselines import in_metric_names
from subtext.run_dir import RunDir
from subtext.tracking.runs import log_metrics, mlflow_run_id
from subtext.tracking.store import client, mlflow_errors, tracking_uri


def log_folds(runs: Sequence[RunDir], path: Path) -> str:
    """Log the pooled figures in `path` and the file itself; return the MLflow run's id.

    The run is named after the file, and a second call finds it again. Metrics are named
    `folds/<policy or baseline>/<figure>` (means over the folds) and `pooled/<policy>/accuracy`.
    Raises TrackingError.
    """
    folds = strict_json.read(path)
    written_ms = int(path.stat().st_mtime * 1000)
    figures = {
        f"folds/{in_metric_names(who)}/{name}": value
        for who, mean in folds["mean"].items()
        for name, value in mean.items()
    } | {f"pooled/{who}/accuracy": pooled["accuracy"] for who, pooled in folds["pooled"].items()}
    with mlflow_errors(f"take {path.name}"):
        store = client(tracking_uri())
        fold_ids = [mlflow_run_id(run) for run in runs]
        experiment_id = store.get_run(fold_ids[0]).info.experiment_id
        known = store.search_runs([experiment_id], f"tags.folds = '{path.stem}'")
        found = known[0] if known else store.create_run(experiment_id, run_name=path.stem)
        run_id: str = found.info.run_id
        store.set_tag(run_id, "folds", path.stem)
        store.set_tag(run_id, "fold_runs", ",".join(fold_ids))
        log_metrics(store, run_id, figures, written_ms)
        store.log_artifact(run_id, str(path))
        store.set_terminated(run_id)
    return run_id
