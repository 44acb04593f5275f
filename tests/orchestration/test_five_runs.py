"""Five runs at once on one Prefect server, one worker and one MLflow store, all in SQLite."""

from pathlib import Path

import pytest
from mlflow import MlflowClient
from support.corpus import write_corpus
from support.prefect_api import start_run, wait_for_state
from support.tiny_policy import build_tiny_policy

from subtext import strict_json
from subtext.run_dir import RunDir

N_RUNS = 5
POOL = "five-runs-pool"
RUN_LIMIT_S = 400

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.fixture
def home(tmp_path) -> Path:
    write_corpus(tmp_path / "data" / "mustard", n_clips=24)
    build_tiny_policy(tmp_path / "policy")
    return tmp_path


def overrides(home: Path, run_id: str) -> dict:
    return {
        "data": {"require_prosody": False, "n_train_rows": 8},
        "model": {"source": "path", "name": str(home / "policy"), "quantization": "none"},
        "warm_start": {"steps": 0},
        "grpo": {"max_steps": 1, "num_generations": 2, "max_completion_length": 8},
        "training": {"run_id": run_id, "per_device_train_batch_size": 2, "num_threads": 1},
        "evaluation": {"n_eval_clips": 2, "ablations": [], "n_train_clips": 0},
    }


def test_all_end_completed_and_keep_their_own_results(server, home):
    server.cli("work-pool", "create", POOL, "--type", "process")
    server.cli("--no-prompt", "deploy", "--name", "train-cpu", "--pool", POOL)
    env = {
        "SUBTEXT_HOME": str(home),
        "HF_HOME": str(home / "hf"),
        "PREFECT_WORKER_QUERY_SECONDS": "2",
    }
    with server.worker(POOL, home, env) as log:
        started = {
            run_id: start_run(server, "subtext/train-cpu", {"overrides": overrides(home, run_id)})
            for run_id in (f"run-{number}" for number in range(N_RUNS))
        }
        try:
            for flow_run in started.values():
                wait_for_state(server, flow_run, "Completed", RUN_LIMIT_S)
        except AssertionError as error:
            raise AssertionError(log.read_text()) from error
    said = log.read_text()
    assert "database is locked" not in said

    uri = f"sqlite:///{home / 'mlflow.db'}"
    client = MlflowClient(uri, registry_uri=uri)
    versions = {version.run_id: int(version.version) for version in client.search_model_versions()}
    tracked = {}
    for run_id in started:
        run = RunDir(home / "runs" / run_id)
        record = strict_json.read(run.tracking)
        tracked[run_id] = record["run_id"]
        mlflow_run = client.get_run(record["run_id"])
        assert mlflow_run.info.status == "FINISHED"
        steps = client.get_metric_history(record["run_id"], "train/reward")
        assert [metric.step for metric in steps] == [1]
        judged = strict_json.read(run.metrics)["passes"]["trained"]["accuracy"]
        assert mlflow_run.data.metrics["eval/trained/accuracy"] == judged
        assert versions[record["run_id"]] == record["model"]["version"]
    assert len(set(tracked.values())) == N_RUNS
    assert sorted(versions.values()) == [1, 2, 3, 4, 5]
    newest = client.get_model_version_by_alias("subtext", "challenger")
    assert newest.run_id in tracked.values()
