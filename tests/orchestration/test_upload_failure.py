"""One upload fails for good: the others land, nobody says success, a repeat trains nothing."""

import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient
from support.corpus import write_corpus
from support.tiny_policy import build_tiny_policy

from subtext import strict_json
from subtext.run_dir import RunDir

ADAPTER_REPO = "local/tiny-judge"
RESULTS_REPO = "local/tiny-results"
RUN_ID = "tiny-1"
UPLOADS = {"adapter", "trainer_state", "log_history", "held_out_eval"}
KNOBS = {
    "data.require_prosody": "false",
    "model.source": "path",
    "model.quantization": "none",
    "warm_start.steps": "0",
    "grpo.max_steps": "2",
    "grpo.max_completion_length": "16",
    "training.run_id": RUN_ID,
    "training.save_steps": "2",
    "evaluation.n_eval_clips": "4",
    "publish.adapter_repo": ADAPTER_REPO,
    "publish.results_repo": RESULTS_REPO,
}

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path) -> Path:
    write_corpus(tmp_path / "data" / "mustard")
    build_tiny_policy(tmp_path / "policy")
    return tmp_path


def run_module(server, hub, home: Path, *arguments: str):
    env = {"SUBTEXT_HOME": str(home), "HF_HOME": str(home / "hf"), **hub.environment}
    return server.run([sys.executable, "-m", *arguments], env, timeout=400)


def mlflow_run(home: Path, run: RunDir):
    uri = f"sqlite:///{home / 'mlflow.db'}"
    return MlflowClient(uri, registry_uri=uri).get_run(strict_json.read(run.tracking)["run_id"])


def test_failed_upload_then_publish_flow(server, hub, home):
    hub.fault("commit", repo=RESULTS_REPO, status=403)
    knobs = {**KNOBS, "model.name": str(home / "policy")}
    settings = [part for name, value in knobs.items() for part in ("--set", f"{name}={value}")]
    result = run_module(server, hub, home, "flows.train_flow", "--profile", "cpu", *settings)
    run = RunDir(home / "runs" / RUN_ID)

    assert result.returncode == 1, result.stdout + result.stderr
    assert "1 of 4 uploads failed" in result.stderr
    assert "trainer_state" in result.stderr
    assert f"flows.publish_flow --run {run.path}`" in result.stderr
    assert f"Held-out clips, {RUN_ID}" in result.stdout, "what was measured is shown all the same"
    assert "Error encountered when computing cache key" not in result.stdout + result.stderr
    assert set(strict_json.read(run.published)) == UPLOADS - {"trainer_state"}
    assert set(hub.files(RESULTS_REPO, "spaces")) >= {
        f"data/{name}_{RUN_ID}.json" for name in ("log_history", "held_out_eval")
    }
    refused = [entry for entry in hub.requests("commit") if entry["status"] == 403]
    assert len(refused) == 1, "a final refusal is not tried again"
    failed = mlflow_run(home, run)
    assert failed.info.status == "FAILED"
    assert strict_json.read(run.tracking)["model"]["version"] == 1

    adapter_written = (run.adapter / "adapter_model.safetensors").stat().st_mtime_ns
    card = run.model_card.read_bytes()
    run.model_card.write_text("TRL's draft")
    hub.clear()
    result = run_module(server, hub, home, "flows.publish_flow", "--run", RUN_ID)

    assert result.returncode == 0, result.stdout + result.stderr
    assert "Held-out clips, tiny-1" in result.stdout
    published = strict_json.read(run.published)
    assert set(published) == UPLOADS
    assert [entry["files"] for entry in hub.requests("commit")] == [
        [f"data/trainer_state_{RUN_ID}.json"]
    ]
    assert (run.adapter / "adapter_model.safetensors").stat().st_mtime_ns == adapter_written
    assert run.model_card.read_bytes() == card
    tracked = mlflow_run(home, run)
    copy = MlflowClient(f"sqlite:///{home / 'mlflow.db'}").download_artifacts(
        tracked.info.run_id, "published.json", str(home)
    )
    assert strict_json.read(Path(copy)) == published
    tags = tracked.data.tags
    assert tags["hub.trainer_state"] == f"{RESULTS_REPO}@{published['trainer_state']['revision']}"
