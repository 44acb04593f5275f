"""The main job as its users start it: server, worker elsewhere, deployment, local Hub."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from support.corpus import write_corpus
from support.hub import LocalHub
from support.prefect_server import CHECKOUT, PrefectServer

from subtext import strict_json
from subtext.data.scenarios import load_scenarios
from subtext.prosody.from_tracks import records_from_npz
from subtext.run_dir import RunDir

SHARED = CHECKOUT.parent / "shared"
PREFECT = [sys.executable, "-m", "prefect"]
POOL = "subtext-pool"
SETUP = (f"work-pool create {POOL} --type process", "--no-prompt deploy --all")
DOWNLOAD = (
    "import mlflow, sys; mlflow.artifacts.download_artifacts(sys.argv[1], dst_path=sys.argv[2])"
)
RUN_LIMIT_S = 900

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def deployed(server) -> PrefectServer:
    document = (CHECKOUT / "docs" / "deploy.md").read_text("utf-8")
    for command in SETUP:
        assert f"    prefect {command}\n" in document, "docs/deploy.md says what this test does"
        server.cli(*command.split())
    return server


@pytest.fixture
def worker(deployed, hub, tmp_path) -> Iterator[Path]:
    directory = tmp_path / "a worker's directory"
    directory.mkdir()
    # Where runs, mlflow.db and data/mustard are; without it, the checkout.
    home = {"SUBTEXT_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
    with deployed.worker(POOL, directory, {**home, **hub.environment}) as log:
        yield log


def run_deployment(server: PrefectServer, worker_log: Path, name: str, overrides: dict) -> str:
    """Run `subtext/train-cpu` to its end, which must be Completed; return the worker's log."""
    result = server.run(
        [
            *PREFECT, "deployment", "run", "subtext/train-cpu", "--watch", "--flow-run-name", name,
            "-p", f"overrides={json.dumps(overrides)}",
        ],
        {}, RUN_LIMIT_S,
    )  # fmt: skip
    said = worker_log.read_text()
    assert result.returncode == 0, result.stdout + result.stderr + said
    assert "Completed" in result.stdout
    assert "Error encountered when computing cache key" not in said
    return said


def overrides_for(tag: str) -> dict:
    """The profile's way of training, with everything short: two cores do it in a few minutes."""
    return {
        "grpo": {"max_steps": 3, "num_generations": 2, "max_completion_length": 8},
        "training": {"per_device_train_batch_size": 2},
        "warm_start": {"steps": 1, "batch_size": 2},
        "evaluation": {"n_eval_clips": 8, "n_train_clips": 2},
        "publish": {
            "adapter_repo": f"local/judge-{tag}",
            "results_repo": f"local/space-{tag}",
        },
    }


def check_everything_agrees(home: Path, hub: LocalHub, overrides: dict) -> RunDir:
    """Run directory, MLflow run, registered version, Hub and Space tell the same story."""
    [folder] = (path for path in (home / "runs").iterdir() if path.is_dir())
    run = RunDir(folder)
    metrics = strict_json.read(run.metrics)
    judged = strict_json.read(run.split)["judged"]
    assert 0 < len(judged) <= 8
    counts = {name: figures["n_eval_clips"] for name, figures in metrics["passes"].items()}
    assert counts == {
        **dict.fromkeys(("base", "warm", "trained", "no_prosody"), len(judged)),
        "train_sample": 2,
    }
    assert [r["clip_id"] for r in strict_json.read(run.held_out_eval)["results"]] == judged
    check_hub(run, hub, overrides["publish"])
    check_mlflow(run, home, metrics)
    return run


def check_hub(run: RunDir, hub: LocalHub, publish: dict) -> None:
    published = strict_json.read(run.published)
    results = {"trainer_state", "log_history", "held_out_eval"}
    assert set(published) == {"adapter", *results}
    adapter = hub.files(publish["adapter_repo"])
    space = hub.files(publish["results_repo"], "spaces")
    for name, there in {"adapter": adapter, **dict.fromkeys(results, space)}.items():
        for path, sha256 in published[name]["files"].items():
            assert hashlib.sha256(there[path]).hexdigest() == sha256
    local = (run.adapter / "adapter_model.safetensors").read_bytes()
    assert adapter["adapter_model.safetensors"] == local
    assert adapter["README.md"] == run.model_card.read_bytes()
    for name in results:
        assert space[f"data/{name}_{run.run_id}.json"] == (run.path / f"{name}.json").read_bytes()


def check_mlflow(run: RunDir, home: Path, metrics: dict) -> None:
    uri = f"sqlite:///{home / 'mlflow.db'}"
    client = MlflowClient(uri, registry_uri=uri)
    record = strict_json.read(run.tracking)
    tracked = client.get_run(record["run_id"])
    assert tracked.info.status == "FINISHED"
    assert tracked.data.params["grpo.max_steps"] == "3"
    assert tracked.data.metrics["eval/trained/accuracy"] == metrics["passes"]["trained"]["accuracy"]
    steps = [item.step for item in client.get_metric_history(record["run_id"], "train/reward")]
    assert steps == [1, 2, 3]
    [dataset] = tracked.inputs.dataset_inputs
    assert strict_json.read(run.split)["data_digest"].startswith(dataset.dataset.digest)

    version = client.get_model_version_by_alias("subtext", "challenger")
    assert version.run_id == record["run_id"]
    adapter = strict_json.read(run.published)["adapter"]
    pinned = f"{adapter['repo_id']}@{adapter['revision']}"
    assert version.tags["hub.adapter"] == tracked.data.tags["hub.adapter"] == pinned
    subprocess.run(
        [sys.executable, "-c", DOWNLOAD, "models:/subtext@challenger", str(home / "model")],
        env={**os.environ, "MLFLOW_TRACKING_URI": uri}, timeout=120, check=True,
    )  # fmt: skip
    weights = [path.read_bytes() for path in (home / "model").rglob("adapter_model.safetensors")]
    assert weights == [(run.adapter / "adapter_model.safetensors").read_bytes()]


def test_bad_knobs_are_refused_by_the_api(deployed):
    result = deployed.run(
        [
            *PREFECT, "deployment", "run", "subtext/train-cpu",
            "-p", 'overrides={"grpo":{"max_stepz":3}}',
        ],
        {}, 60,
    )  # fmt: skip
    assert result.returncode != 0
    assert "max_stepz" in result.stdout + result.stderr


def test_generated_corpus(deployed, worker, hub, tmp_path):
    write_corpus(tmp_path / "data" / "mustard")
    overrides = overrides_for("generated")
    said = run_deployment(deployed, worker, "generated", overrides)
    check_everything_agrees(tmp_path, hub, overrides)
    assert "grpo 3/3" in said
    artifacts = deployed.cli("artifact", "ls")
    for key in ("leaks", "grpo-progress", "results", "verdict", "gate", "places"):
        assert key in artifacts


def test_real_mustard(deployed, worker, hub, tmp_path):
    if not (SHARED / "mustard").exists():
        pytest.skip("../shared/mustard is not beside this checkout")
    root = tmp_path / "data" / "mustard"
    root.mkdir(parents=True)
    shutil.copyfile(SHARED / "mustard" / "sarcasm_data.json", root / "sarcasm_data.json")
    records = records_from_npz(SHARED / "mustard" / "tracks_210.npz")
    strict_json.write(root / "prosody.json", records)
    overrides = overrides_for("real")
    run_deployment(deployed, worker, "real", overrides)
    run = check_everything_agrees(tmp_path, hub, overrides)
    split, scenarios = strict_json.read(run.split), load_scenarios(root)
    assert all(scenarios[clip_id]["prosody"] for clip_id in split["train"] + split["held_out"])
    assert len(split["train"]) + len(split["held_out"]) == 210
