"""The real training, killed, interrupted and cancelled: Prefect, MLflow and the exit code agree.

`test_tracked` has the same table for small flows, which succeed and fail too.
"""

import json
import signal
import time

import psutil
import pytest
from mlflow import MlflowClient
from support.tiny_run import KNOBS, Flow, last_step, settings, write_home

from subtext import strict_json
from subtext.policy.checkpoints import newest_checkpoint
from subtext.run_dir import RunDir

pytestmark = pytest.mark.faults

POOL = "states-pool"
ADAPTER_REPO = "local/cancelled-judge"


@pytest.fixture
def home(tmp_path):
    return write_home(tmp_path)


def mlflow_run(home, run: RunDir):
    uri = f"sqlite:///{home / 'mlflow.db'}"
    return MlflowClient(uri, registry_uri=uri).get_run(strict_json.read(run.tracking)["run_id"])


def test_killed_then_terminated_then_finished(server, home):
    run, env, max_steps = RunDir(home / "runs" / "killed"), {"SUBTEXT_HOME": str(home)}, 8
    start = (server, env, "flows.train_flow")
    knobs = settings(home, run.run_id, max_steps, training__save_steps="2")
    with Flow(*start, *knobs) as killed:
        killed.wait_for_step(run, 3)
        killed.process.kill()
        assert killed.end() == -signal.SIGKILL
    assert mlflow_run(home, run).info.status == "RUNNING", "nobody is there to say otherwise"
    assert server.state_of(killed.flow_run_id()) == "Running"

    with Flow(*start, *knobs) as terminated:
        terminated.wait_for_step(run, 5)
        terminated.process.terminate()
        assert terminated.end() == 130, terminated.said
    assert "Interrupted. Go on with the same command." in terminated.said
    assert server.state_of(killed.flow_run_id()) == "Crashed", "said by the next start"
    assert "is gone and ended it in no other way" in terminated.said
    assert mlflow_run(home, run).info.status == "KILLED"
    assert server.state_of(terminated.flow_run_id()) == "Crashed"
    checkpoint = newest_checkpoint(run)
    assert checkpoint is not None
    assert checkpoint.step == last_step(run)

    with Flow(*start, *knobs) as finished:
        assert finished.end() == 0, finished.said
    assert server.state_of(finished.flow_run_id()) == "Completed"
    tracked = mlflow_run(home, run)
    assert tracked.info.status == "FINISHED"
    assert "ended_because" not in tracked.data.tags
    assert strict_json.read(run.training)["resumed_at"] == [2, checkpoint.step]


def test_cancelled_from_the_api(server, hub, home, tmp_path):
    """The process is gone, the last checkpoint whole, nothing uploaded."""
    run = RunDir(home / "runs" / "cancelled")
    sections: dict[str, dict[str, object]] = {}
    named = {
        "model.name": str(home / "policy"), "training.run_id": run.run_id,
        "grpo.max_steps": "500", "data.n_train_rows": "4000", "publish.adapter_repo": ADAPTER_REPO,
    }  # fmt: skip
    for name, value in {**KNOBS, **named}.items():
        section, field = name.split(".")
        plain = value.isdecimal() or value in ("true", "false", "[]")
        sections.setdefault(section, {})[field] = json.loads(value) if plain else value
    server.cli("work-pool", "create", POOL, "--type", "process")
    deploy = (
        "deploy", "flows/train_flow.py:train_flow", "--name", "cancelled", "--pool", POOL,
        "--param", "profile=cpu",
    )  # fmt: skip
    server.cli("--no-prompt", *deploy)
    env = {"SUBTEXT_HOME": str(home), **hub.environment}
    with server.worker(POOL, tmp_path, env) as log:
        overrides = f"overrides={json.dumps(sections)}"
        said = server.cli("deployment", "run", "subtext/cancelled", "-p", overrides)
        [flow_run_id] = [line.split()[-1] for line in said.splitlines() if "UUID" in line]
        deadline = time.monotonic() + 240
        while last_step(run) < 7:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        pid = int(mlflow_run(home, run).data.tags["pid"])
        process = psutil.Process(pid)
        server.cli("flow-run", "cancel", flow_run_id)
        psutil.wait_procs([process], timeout=60)
        assert not process.is_running(), log.read_text()
        deadline = time.monotonic() + 60
        while server.state_of(flow_run_id) != "Cancelled":
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)
    tracked = mlflow_run(home, run)
    assert tracked.info.status == "KILLED"
    assert hub.requests("commit") == []
    checkpoint = newest_checkpoint(run)
    assert checkpoint is not None
    assert checkpoint.step == last_step(run)
    assert not strict_json.read(run.training)["finished"]
