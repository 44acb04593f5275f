"""The evaluation in MLflow: figures as metrics, every judged clip as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from subtext.evaluation.baselines import in_metric_names
from subtext.evaluation.judgements import CHAMPION, champion_records
from subtext.run_dir import RunDir
from subtext.tracking.runs import log_metrics, mlflow_run_id
from subtext.tracking.store import client, mlflow_errors, tracking_uri

PREDICTIONS = "predictions.json"
_COLUMNS = (
    "clip_id", "gold", "predicted", "confidence", "p_sarcastic", "correct", "well_formed",
    "strict", "is_pivot", "reward_total", "n_tokens", "completion_text",
)  # fmt: skip
_COMPARED = ("difference", "p_value", "p_holm", "flip_rate")


def log_evaluation(run: RunDir) -> None:
    """Log metrics.json's figures and files, and a table with one row a pass and clip.

    Figures are named `eval/<pass>/…`, `baseline/<name>/…`, `against/<name>/…` (the trained policy
    beside another) and `ablation/<name>/…`. Logging twice changes nothing: metrics carry the
    file's time, and the table, to which MLflow would append, is logged once. Raises TrackingError,
    DataError for a run that was not evaluated.
    """
    evaluation = run.require(run.metrics)
    written_ms = int(run.metrics.stat().st_mtime * 1000)
    with mlflow_errors(f"take the evaluation of {run.run_id}"):
        store, run_id = client(tracking_uri()), mlflow_run_id(run)
        log_metrics(store, run_id, dict(_figures(evaluation)), written_ms)
        store.set_tag(run_id, "verdict", evaluation["verdict"])
        if judged := evaluation["judged_model"]:
            store.set_tag(run_id, "judged_model", judged["model"])
        for path in (run.metrics, run.held_out_eval, run.report):
            store.log_artifact(run_id, str(path))
        if PREDICTIONS not in [file.path for file in store.list_artifacts(run_id)]:
            store.log_table(run_id, _predictions(run), PREDICTIONS)


def _figures(evaluation: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, figures in evaluation["passes"].items():
        yield from _numbers(f"eval/{name}", figures)
    for name, figures in evaluation["baselines"].items():
        yield from _numbers(f"baseline/{in_metric_names(name)}", figures)
    for row in evaluation["comparisons"]:
        yield from _numbers(f"against/{in_metric_names(row['name'])}", _compared(row))
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


def _predictions(run: RunDir) -> Any:
    import pandas as pd

    passes = run.require(run.held_out_eval)["passes"]
    records = {name: summary["results"] for name, summary in passes.items()}
    rows = [
        {"pass": name, **{column: record[column] for column in _COLUMNS}}
        for name, judged in (*records.items(), (CHAMPION, champion_records(run)))
        for record in judged
    ]
    return pd.DataFrame(rows)
