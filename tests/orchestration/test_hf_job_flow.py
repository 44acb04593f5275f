"""A run on Hugging Face Jobs as its users start it: server, worker, deployment, and the local Hub,
whose jobs really clone the code, train and send the run directory back."""

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from support.corpus import write_corpus
from support.hub import LocalHub
from support.prefect_server import CHECKOUT, PrefectServer
from support.tiny_policy import build_tiny_policy

from subtext import strict_json
from subtext.run_dir import RunDir, load_config

POOL, DEPLOYMENT = "hf-job-pool", "subtext/hf-job-rehearsal"
USER = "local"
OVERRIDES = {
    "data": {"require_prosody": False, "n_train_rows": 16},
    "model": {"source": "path", "quantization": "none"},
    "warm_start": {"steps": 0},
    "grpo": {"max_steps": 1, "num_generations": 2, "max_completion_length": 8},
    "training": {"per_device_train_batch_size": 2},
    "evaluation": {"n_eval_clips": 4, "ablations": [], "n_train_clips": 0},
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> tuple[str, str]:
    """This checkout as it is now, as one commit of a repository: its address and the commit."""
    folder = tmp_path_factory.mktemp("repository")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, listed):
        if (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((CHECKOUT / name).read_bytes())
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "--all"], ["commit", "-q", "-m", "as it is"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return f"file://{folder}", head.stdout.strip()


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("home")
    write_corpus(home / "data" / "mustard")
    build_tiny_policy(home / "policy")
    return home


@pytest.fixture(scope="module")
def deployed(server, session_hub, home) -> Iterator[PrefectServer]:
    server.cli("work-pool", "create", POOL, "--type", "process")
    server.cli(
        "--no-prompt", "deploy", "flows/hf_job_flow.py:hf_job_flow", "--pool", POOL,
        "--name", DEPLOYMENT.partition("/")[2],
    )  # fmt: skip
    env = {"SUBTEXT_HOME": str(home), "HF_HOME": str(home / "hf"), **session_hub.environment}
    with server.worker(POOL, home, env):
        yield server


def start(server: PrefectServer, name: str, job: dict, overrides: dict | None = None) -> str:
    """Start the deployment and return the id of the flow run, which is also called `name`."""
    server.cli(
        "deployment", "run", DEPLOYMENT, "--flow-run-name", name,
        "-p", f"job={json.dumps(job)}", "-p", "profile=cpu",
        "-p", f"overrides={json.dumps(overrides or {})}",
    )  # fmt: skip
    [run] = ask(server, "flow_runs", {"flow_runs": {"name": {"any_": [name]}}})
    return str(run["id"])


def ask(server: PrefectServer, what: str, query: dict) -> list[dict]:
    request = urllib.request.Request(
        f"{server.url}/{what}/filter", json.dumps(query).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: list[dict] = json.load(answer)
    return found


def log_of(server: PrefectServer, flow_run: str) -> str:
    entries = ask(server, "logs", {"logs": {"flow_run_id": {"any_": [flow_run]}}})
    return "\n".join(entry["message"] for entry in entries)


def whole_log(server: PrefectServer, flow_run: str) -> str:
    """The log of a flow run that ended: its last lines come later than its state."""
    deadline = time.monotonic() + 30
    while "Finished in state" not in (said := log_of(server, flow_run)):
        assert time.monotonic() < deadline, said
        time.sleep(0.5)
    return said


def state_of(server: PrefectServer, flow_run: str) -> dict:
    [run] = ask(server, "flow_runs", {"flow_runs": {"id": {"any_": [flow_run]}}})
    state: dict = run["state"]
    return state


def wait_for(server: PrefectServer, flow_run: str, types: set[str], limit_s: float) -> dict:
    deadline = time.monotonic() + limit_s
    while (state := state_of(server, flow_run))["type"] not in types:
        assert time.monotonic() < deadline, f"{state}\n{log_of(server, flow_run)}"
        time.sleep(0.5)
    return state


def jobs_of(hub: LocalHub, run_id: str) -> list[dict]:
    listed: list[dict] = hub.call(
        "GET", f"/api/jobs/{USER}?label=subtext-run%3D{run_id}", token=hub.token
    )
    return listed


def endless(mark: Path) -> dict:
    """A job that says that it is up and never ends."""
    loop = f"while :; do touch {mark}; sleep 0.2; done"
    return {"code_path": "/tmp", "install": f"echo up; {loop}", "corpus": "none"}


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_the_run_comes_back_registered_and_published(deployed, hub, home, repository):
    address, commit = repository
    job = {
        "repository": address, "commit": commit, "install": "", "corpus": "none",
        "env": {"PREFECT_API_URL": deployed.url, "OMP_NUM_THREADS": "1"},
    }  # fmt: skip
    overrides = {
        **OVERRIDES,
        "data": {**OVERRIDES["data"], "root": str(home / "data" / "mustard")},
        "model": {**OVERRIDES["model"], "name": str(home / "policy")},
        "training": {**OVERRIDES["training"], "run_id": "on-jobs"},
        "publish": {"adapter_repo": f"{USER}/jobs-judge"},
    }
    flow_run = start(deployed, "comes-back", job, overrides)
    state = wait_for(deployed, flow_run, {"COMPLETED", "FAILED", "CRASHED"}, 500)
    said = whole_log(deployed, flow_run)
    assert state["type"] == "COMPLETED", said

    run = RunDir(home / "runs" / "on-jobs")
    assert load_config(run).publish.adapter_repo == f"{USER}/jobs-judge"
    assert set(strict_json.read(run.published)) == {"adapter"}
    adapter = (run.adapter / "adapter_model.safetensors").read_bytes()
    assert hub.files(f"{USER}/jobs-judge")["adapter_model.safetensors"] == adapter
    archive = hub.files(f"{USER}/subtext-runs", "datasets")
    assert archive["on-jobs/adapter/adapter_model.safetensors"] == adapter
    assert hub.call("GET", f"/api/datasets/{USER}/subtext-runs", token=hub.token)["private"]

    uri = f"sqlite:///{home / 'mlflow.db'}"
    client = MlflowClient(uri, registry_uri=uri)
    tracked = client.get_run(strict_json.read(run.tracking)["run_id"])
    assert tracked.info.status == "FINISHED"
    assert [m.step for m in client.get_metric_history(tracked.info.run_id, "train/reward")] == [1]
    assert client.get_model_version_by_alias("subtext", "challenger").run_id == tracked.info.run_id

    [there] = jobs_of(hub, "on-jobs")
    assert there["status"]["stage"] == "COMPLETED"
    assert commit in said
    assert "grpo 1/1" in said, "the job's own log is in the flow run's"
    assert "0.40 US dollars an hour" in said
    parameters = ask(deployed, "flow_runs", {"flow_runs": {"id": {"any_": [flow_run]}}})
    for shown in (said, json.dumps(parameters), json.dumps(there)):
        assert hub.token not in shown


def test_cancelled_with_its_flow_run(deployed, hub, home):
    mark = home / "alive"
    overrides = {"training": {"run_id": "cancelled"}}
    flow_run = start(deployed, "cancelled", endless(mark), overrides)
    deadline = time.monotonic() + 120
    while not mark.exists():
        assert time.monotonic() < deadline, log_of(deployed, flow_run)
        time.sleep(0.5)
    deployed.cli("flow-run", "cancel", flow_run)
    wait_for(deployed, flow_run, {"CANCELLED"}, 90)
    deadline = time.monotonic() + 30
    while jobs_of(hub, "cancelled")[0]["status"]["stage"] != "CANCELED":
        assert time.monotonic() < deadline
        time.sleep(0.5)
    mark.unlink()
    time.sleep(1)
    assert not mark.exists()
    assert not (home / "runs" / "cancelled").exists()


def test_failed_job_is_a_failed_flow_run(deployed, hub, home):
    job = {"code_path": "/tmp", "install": "echo no such wheel; exit 7", "corpus": "none"}
    flow_run = start(deployed, "failed", job, {"training": {"run_id": "failed"}})
    state = wait_for(deployed, flow_run, {"FAILED", "CRASHED", "COMPLETED"}, 120)
    assert state["type"] == "FAILED"
    assert "ended ERROR: Job failed with exit code: 7" in state["message"]
    assert "no such wheel" in state["message"]
    assert len(jobs_of(hub, "failed")) == 1
