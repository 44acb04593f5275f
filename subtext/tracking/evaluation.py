"""The evaluation in MLflow: figures as metrics, every judged clip as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from subtext import strict_json
from subtext.run_dir import RunDir
from subtext.tracking.runs import mlflow_run_id
from subtext.tracking.store import client, mlflow_errors, tracking_uri

PREDICTIONS = "predictions.json"
_COLUMNS = (
    "clip_id", "gold", "predicted", "confidence", "p_sarcastic", "correct", "well_formed",
    "strict", "is_pivot", "reward_total", "n_tokens", "completion_text",
)  # fmt: skip
_METRICS_PER_REQUEST = 500
_COMPARED = ("difference", "p_value", "p_holm", "flip_rate")


def log_evaluation(run: RunDir) -> None:
    """Log metrics.json's figures and files, and a table with one row a pass and clip.

    Figures are named `eval/<pass>/…`, `baseline/<name>/…`, `against/<name>/…` (the trained policy
    beside another) and `ablation/<name>/…`. Logging twice changes nothing: metrics carry the
    file's time, and the table, to which MLflow would append, is logged once. Raises TrackingError.
    """
    from mlflow.entities import Metric

    written_ms = int(run.metrics.stat().st_mtime * 1000)
    evaluation = strict_json.read(run.metrics)
    metrics = [Metric(name, value, written_ms, 0) for name, value in _figures(evaluation)]
    with mlflow_errors(f"take the evaluation of {run.run_id}"):
        store, run_id = client(tracking_uri()), mlflow_run_id(run)
        for start in range(0, len(metrics), _METRICS_PER_REQUEST):
            chunk = metrics[start : start + _METRICS_PER_REQUEST]
            store.log_batch(run_id, metrics=chunk, synchronous=True)
        store.set_tag(run_id, "verdict", evaluation["verdict"])
        for path in (run.metrics, run.held_out_eval, run.report):
            store.log_artifact(run_id, str(path))
        if PREDICTIONS not in [file.path for file in store.list_artifacts(run_id)]:
            store.log_table(run_id, _predictions(run), PREDICTIONS)


def _figures(evaluation: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, figures in evaluation["passes"].items():
        yield from _numbers(f"eval/{name}", figures)
    for name, figures in evaluation["baselines"].items():
        yield from _numbers(f"baseline/{_slug(name)}", figures)
    for row in evaluation["comparisons"]:
        yield from _numbers(f"against/{_slug(row['name'])}", _compared(row))
    for name, row in evaluation["ablations"].items():
        yield from _numbers(f"ablation/{name}", _compared(row))


def _compared(row: Mapping[str, Any]) -> dict[str, Any]:
    low, high = row["interval"]
    kept = {key: row[key] for key in _COMPARED if key in row}
    return {**kept, "difference_low": low, "difference_high": high}


def _numbers(prefix: str, figures: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in figures.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number:
            yield f"{prefix}/{key}", float(value)


def _slug(name: str) -> str:
    return name.replace(" + ", "_").replace(" ", "_")


def _predictions(run: RunDir) -> Any:
    import pandas as pd

    rows = [
        {"pass": name, **{column: record[column] for column in _COLUMNS}}
        for name, summary in strict_json.read(run.held_out_eval)["passes"].items()
        for record in summary["results"]
    ]
    return pd.DataFrame(rows)
