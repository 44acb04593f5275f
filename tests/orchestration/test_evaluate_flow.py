"""The flow `subtext-evaluate`: five official folds, then one of their policies on another split."""

import json
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient
from support.corpus import write_corpus
from support.tiny_policy import build_tiny_policy

from subtext import strict_json
from subtext.run_dir import RunDir

N_CLIPS = 40
KNOBS = {
    "data.require_prosody": "false",
    "data.n_train_rows": "16",
    "model.source": "path",
    "model.quantization": "none",
    "warm_start.steps": "0",
    "grpo.max_steps": "1",
    "grpo.max_completion_length": "16",
    "evaluation.ablations": "[]",
    "evaluation.n_train_clips": "0",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("home")
    root = write_corpus(home / "data" / "mustard", n_clips=N_CLIPS)
    ids = list(json.loads((root / "sarcasm_data.json").read_text()))
    folds = [
        {"train": [clip for i, clip in enumerate(ids) if i % 5 != fold], "test": ids[fold::5]}
        for fold in range(5)
    ]
    (root / "official_folds.json").write_text(json.dumps(folds))
    build_tiny_policy(home / "policy")
    return home


def evaluate(server, home: Path, *arguments: str):
    knobs = KNOBS | {"model.name": str(home / "policy")}
    settings = [part for name, value in knobs.items() for part in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "flows.evaluate_flow", "--profile", "cpu", *settings]
    env = {"SUBTEXT_HOME": str(home), "SUBTEXT_BASE_MODEL": str(home / "policy")}
    return server.run([*command, *arguments], env, timeout=560)


@pytest.fixture(scope="module")
def folds(server, home):
    return evaluate(server, home, "--protocol", "official-folds", "--set", "training.run_id=five")


def test_every_clip_is_judged_by_the_policy_that_never_saw_it(home, folds):
    assert folds.returncode == 0, folds.stdout + folds.stderr
    judged = []
    for fold in range(5):
        run = RunDir(home / "runs" / f"five-fold-{fold}")
        split, passes = run.require(run.split), run.require(run.held_out_eval)["passes"]
        ids = [record["clip_id"] for record in passes["trained"]["results"]]
        assert not set(ids) & set(split["train"])
        assert run.require(run.metrics)["schema"] == "subtext.evaluation/1"
        judged += ids
    assert len(judged) == len(set(judged)) == N_CLIPS


def test_the_pooled_result_is_shown_kept_and_tracked(home, folds):
    assert "mean over the folds" in folds.stdout
    assert "these clips are another corpus" in folds.stdout
    (path,) = (home / "runs").glob("folds-*.json")
    assert str(path) in folds.stdout
    assert strict_json.read(path)["n_clips"] == N_CLIPS
    store = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    experiment = store.get_experiment_by_name("subtext")
    runs = store.search_runs([experiment.experiment_id])
    (pooled,) = [run for run in runs if run.info.run_name == path.stem]
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len(runs) == 6
    assert "folds/trained/f1_weighted" in pooled.data.metrics


def test_a_policy_judges_another_split_without_what_it_was_trained_on(server, home, folds):
    model = home / "runs" / "five-fold-0"
    result = evaluate(server, home, "--model", str(model), "--set", "training.run_id=again")
    assert result.returncode == 0, result.stdout + result.stderr
    again = RunDir(home / "runs" / "again")
    trained = again.require(again.held_out_eval)["passes"]["trained"]["results"]
    trained_on = RunDir(model).require(RunDir(model).split)["train"]
    assert trained
    assert not {record["clip_id"] for record in trained} & set(trained_on)
    assert again.report.exists()
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--model", "models:/subtext@nobody"], "models:/subtext@nobody", id="alias"),
        pytest.param(["--model", "no/such/run"], "no/such/run", id="folder"),
        pytest.param(
            ["--protocol", "official-folds", "--set", "data.fold=2"], "data.fold", id="own-fold"
        ),
    ],
)
def test_what_cannot_work_is_refused(server, home, arguments, said):
    result = evaluate(server, home, *arguments)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
