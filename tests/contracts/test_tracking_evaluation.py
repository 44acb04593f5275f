"""The evaluation in a real MLflow store: its figures, its files, and every judged clip once."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mlflow
import pytest
from support.judged_run import evaluation_of, judged_run

from subtext import strict_json, tracking
from subtext.config import BaselineName
from subtext.errors import TrackingError
from subtext.run_dir import RunDir
from subtext.tracking.evaluation import PREDICTIONS

N_FOLDS = 5


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A project root with one SQLite store for this module."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBTEXT_HOME", str(folder))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield folder


@pytest.fixture(scope="module")
def store(home: Path) -> mlflow.MlflowClient:
    return mlflow.MlflowClient(tracking.tracking_uri())


@pytest.fixture(scope="module")
def run(home: Path) -> RunDir:
    return tracked_run(home, "demo-1")


@pytest.fixture(scope="module")
def logged(run: RunDir, store: mlflow.MlflowClient) -> Any:
    """The MLflow run after the evaluation was logged, and logged again as a retry does."""
    tracking.log_evaluation(run)
    tracking.log_evaluation(run)
    return store.get_run(tracking.mlflow_run_id(run))


def tracked_run(home: Path, name: str) -> RunDir:
    run = judged_run(home / "runs" / name)
    tracking.start_run(run, "flow-1", "calm-otter")
    return run


def predictions(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a table that MLflow keeps."""
    table = json.loads(Path(path).read_text("utf-8"))
    return [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]


@pytest.mark.parametrize("name", ["base", "warm", "trained", "no_prosody", "train_sample"])
def test_figures_of_every_pass(run: RunDir, logged: Any, name: str) -> None:
    figures = strict_json.read(run.metrics)["passes"][name]
    found = {
        key.removeprefix(f"eval/{name}/"): value
        for key, value in logged.data.metrics.items()
        if key.startswith(f"eval/{name}/")
    }
    assert found == {
        key: value
        for key, value in figures.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    assert {"accuracy", "strict_rate", "f1_weighted", "brier", "ece", "mean_reward"} <= set(found)


def test_baselines_comparisons_and_altered_prompts(run: RunDir, logged: Any) -> None:
    metrics, evaluation = logged.data.metrics, strict_json.read(run.metrics)
    speaker = evaluation["baselines"]["speaker"]
    assert metrics["baseline/speaker/accuracy"] == speaker["accuracy"]
    assert (
        metrics["baseline/TF-IDF_line_context/brier"]
        == (evaluation["baselines"]["TF-IDF line + context"]["brier"])
    )
    base = evaluation["comparisons"][0]
    for key, value in (
        ("difference", base["difference"]),
        ("difference_low", base["interval"][0]),
        ("difference_high", base["interval"][1]),
        ("p_value", base["p_value"]),
        ("p_holm", base["p_holm"]),
    ):
        assert metrics[f"against/base/{key}"] == pytest.approx(value)
    altered = evaluation["ablations"]["no_prosody"]
    assert metrics["ablation/no_prosody/flip_rate"] == altered["flip_rate"]
    assert metrics["ablation/no_prosody/difference"] == altered["difference"]


def test_no_two_baselines_share_a_name(run: RunDir, logged: Any) -> None:
    names = {key.split("/")[1] for key in logged.data.metrics if key.startswith("baseline/")}
    assert len(names) == len(strict_json.read(run.metrics)["baselines"])
    assert len(names) == len(BaselineName.__args__)


def test_every_value_is_finite_and_logged_once(
    run: RunDir, logged: Any, store: mlflow.MlflowClient
) -> None:
    assert all(math.isfinite(value) for value in logged.data.metrics.values())
    for key in ("eval/trained/accuracy", "against/base/p_holm"):
        history = store.get_metric_history(logged.info.run_id, key)
        assert [(item.step, item.value) for item in history] == [(0, logged.data.metrics[key])]


def test_the_verdict_is_a_tag(run: RunDir, logged: Any) -> None:
    assert logged.data.tags["verdict"] == strict_json.read(run.metrics)["verdict"]


def test_files_are_there_as_they_are(
    run: RunDir, logged: Any, store: mlflow.MlflowClient, tmp_path: Path
) -> None:
    for path in (run.metrics, run.held_out_eval, run.report):
        copy = Path(store.download_artifacts(logged.info.run_id, path.name, str(tmp_path)))
        assert copy.read_bytes() == path.read_bytes()


def test_predictions_are_one_row_a_pass_and_clip_though_logged_twice(
    run: RunDir, logged: Any, store: mlflow.MlflowClient, tmp_path: Path
) -> None:
    path = Path(store.download_artifacts(logged.info.run_id, PREDICTIONS, str(tmp_path)))
    rows = predictions(path)
    passes = strict_json.read(run.held_out_eval)["passes"]
    assert [(row["pass"], row["clip_id"]) for row in rows] == [
        (name, record["clip_id"])
        for name, summary in passes.items()
        for record in summary["results"]
    ]
    by_clip = {(row["pass"], row["clip_id"]): row for row in rows}
    for name in ("base", "trained"):
        for record in passes[name]["results"]:
            row = by_clip[name, record["clip_id"]]
            for column in ("gold", "predicted", "correct", "strict", "completion_text"):
                assert row[column] == record[column]
            assert row["p_sarcastic"] == pytest.approx(record["p_sarcastic"])
    malformed = [row for row in rows if not row["well_formed"]]
    assert malformed and all(row["predicted"] is None for row in malformed)
    assert "NaN" not in path.read_text("utf-8")


def test_mlflow_knows_that_the_predictions_are_a_table(logged: Any) -> None:
    known = json.loads(logged.data.tags["mlflow.loggedArtifacts"])
    assert known == [{"path": PREDICTIONS, "type": "table"}]


def test_the_report_is_kept_with_its_plots(
    run: RunDir, logged: Any, store: mlflow.MlflowClient
) -> None:
    strict_json.write_text(run.plots / "reliability.svg", "<svg/>")
    assert {"report.html", "plots/reliability.svg"} <= set(tracking.log_artifacts(run))
    plots = store.list_artifacts(logged.info.run_id, "plots")
    assert [file.path for file in plots] == ["plots/reliability.svg"]


def test_the_champion_is_compared_too(home: Path, store: mlflow.MlflowClient) -> None:
    run = tracked_run(home, "demo-2")
    evaluation = evaluation_of(champion=True)
    strict_json.write(run.metrics, evaluation)
    tracking.log_evaluation(run)
    metrics = store.get_run(tracking.mlflow_run_id(run)).data.metrics
    champion = evaluation["comparisons"][1]
    assert champion["name"] == "champion"
    assert metrics["against/champion/difference"] == champion["difference"]
    assert metrics["eval/champion/accuracy"] == champion["accuracy_against"]


def test_predictions_hold_the_champion_that_judged_fewer_clips(
    home: Path, store: mlflow.MlflowClient, tmp_path: Path
) -> None:
    run = tracked_run(home, "demo-3")
    records = strict_json.read(run.held_out_eval)["passes"]["base"]["results"][:7]
    run.judgements.mkdir()
    lines = [json.dumps(record) + "\n" for record in records]
    run.records_of("champion").write_text("".join(lines))
    known = {"version": 1, "uri": "models:/subtext/1", "n_shared": 7, "n_trained_on": 33}
    strict_json.write(run.champion, {**known, "reason": None})
    tracking.log_evaluation(run)
    run_id = tracking.mlflow_run_id(run)
    rows = predictions(store.download_artifacts(run_id, PREDICTIONS, str(tmp_path)))
    found = [row["clip_id"] for row in rows if row["pass"] == "champion"]
    assert found == [record["clip_id"] for record in records]


def test_a_run_that_was_not_started_is_refused(home: Path) -> None:
    with pytest.raises(TrackingError, match="run_id is missing"):
        tracking.log_evaluation(judged_run(home / "runs" / "untracked"))


# The official folds


@pytest.fixture(scope="module")
def fold_runs(home: Path) -> list[RunDir]:
    return [tracked_run(home, f"demo-fold-{fold}") for fold in range(N_FOLDS)]


@pytest.fixture(scope="module")
def folds(home: Path, run: RunDir) -> Path:
    figures = strict_json.read(run.metrics)
    content = {
        "mean": {
            "trained": {"accuracy": 0.6, "f1_weighted": 0.5},
            "TF-IDF line + context": {"accuracy": 0.55},
        },
        "pooled": {"trained": figures["passes"]["trained"], "base": figures["passes"]["base"]},
    }
    return strict_json.write(home / "runs" / "folds-0123abcd.json", content)


def test_pooled_folds_are_one_run_beside_the_five(
    fold_runs: list[RunDir], folds: Path, store: mlflow.MlflowClient, tmp_path: Path
) -> None:
    run_id = tracking.log_folds(fold_runs, folds)
    assert tracking.log_folds(fold_runs, folds) == run_id, "a retry finds it again"
    fold_ids = [tracking.mlflow_run_id(run) for run in fold_runs]
    found = store.get_run(run_id)
    assert found.info.run_name == "folds-0123abcd"
    assert found.info.status == "FINISHED"
    assert found.info.experiment_id == store.get_run(fold_ids[0]).info.experiment_id
    assert found.data.tags["fold_runs"] == ",".join(fold_ids)
    pooled = strict_json.read(folds)["pooled"]
    assert found.data.metrics == {
        "folds/trained/accuracy": 0.6,
        "folds/trained/f1_weighted": 0.5,
        "folds/TF-IDF_line_context/accuracy": 0.55,
        "pooled/trained/accuracy": pooled["trained"]["accuracy"],
        "pooled/base/accuracy": pooled["base"]["accuracy"],
    }
    assert len(store.get_metric_history(run_id, "folds/trained/accuracy")) == 1
    copy = Path(store.download_artifacts(run_id, folds.name, str(tmp_path)))
    assert copy.read_bytes() == folds.read_bytes()


def test_other_folds_are_another_run(
    fold_runs: list[RunDir], folds: Path, store: mlflow.MlflowClient
) -> None:
    other = folds.with_name("folds-89abcdef.json")
    other.write_bytes(folds.read_bytes())
    assert tracking.log_folds(fold_runs, other) != tracking.log_folds(fold_runs, folds)
