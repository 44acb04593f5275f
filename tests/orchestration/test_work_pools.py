"""Docker and Kubernetes work pools on a real server, and SIGTERM as a container gets it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.prefect_api import call, start_run, state_of, wait_for_state
from support.prefect_server import CHECKOUT, PrefectServer

MLFLOW = {"mlflow_tracking_uri": "http://mlflow:5000"}
FLOW = '''
import time
from pathlib import Path
from prefect import flow

@flow
def patient(folder: str) -> None:
    """Wait to be released; when stopped before, take a second to save."""
    (Path(folder) / "started").touch()
    try:
        while not (Path(folder) / "release").exists():
            time.sleep(0.1)
    except BaseException as error:
        time.sleep(1)
        (Path(folder) / "saved").write_text(type(error).__name__)
        raise

if __name__ == "__main__":
    patient.from_source(str(Path(__file__).parent), "patient.py:patient").deploy(
        "container", work_pool_name="subtext-docker", print_next_steps=False, build=False,
        image="subtext:latest", job_variables={"mlflow_tracking_uri": "http://mlflow:5000"},
    )
'''

pytestmark = pytest.mark.slow


def documented(pattern: str) -> list[str]:
    """The commands of docs/deploy.md that match `pattern`."""
    text = (CHECKOUT / "docs" / "deploy.md").read_text("utf-8")
    return [line.strip() for line in text.splitlines() if re.match(rf" +{pattern}", line)]


@pytest.fixture(scope="module")
def pools(server) -> PrefectServer:
    commands = documented(r"prefect work-pool create subtext-(docker|kubernetes) ")
    assert len(commands) == 2
    for command in commands:
        server.cli(*command.split()[1:], "--overwrite")
    return server


@pytest.fixture(scope="module")
def deployment(pools) -> dict:
    """`subtext/train-cpu`, deployed for containers as the document says."""
    [deploy] = documented(r"env PWD=/opt/subtext prefect --no-prompt deploy .*subtext-docker")
    command = deploy.replace("$name", "train-cpu").split()
    assert command[:3] == ["env", "PWD=/opt/subtext", "prefect"]
    result = pools.run(
        ["env", "PWD=/opt/subtext", sys.executable, "-m", "prefect", *command[3:]], {}, 120
    )
    assert result.returncode == 0, result.stdout + result.stderr
    deployed: dict = call(pools, "GET", "/deployments/name/subtext/train-cpu")
    return deployed


def test_the_image_is_where_the_flow_looks_for_its_code(deployment):
    assert deployment["work_pool_name"] == "subtext-docker"
    [step] = deployment["pull_steps"]
    assert step["prefect.deployments.steps.set_working_directory"] == {"directory": "/opt/subtext"}
    assert deployment["entrypoint"] == "flows/train_flow.py:train_flow"
    assert deployment["job_variables"]["mlflow_tracking_uri"].startswith("http")


@pytest.mark.parametrize(
    ("pool", "variables", "named"),
    [
        pytest.param("kubernetes", {"gpus": 1, "memory_limit": "24Gi"}, "", id="gpu"),
        pytest.param("kubernetes", {"gpu": 1}, "gpu", id="typo"),
        pytest.param("kubernetes", {"gpus": 0}, "minimum", id="no-gpu-is-left-empty"),
        pytest.param("kubernetes", {"memory_limit": "lots"}, "lots", id="memory-without-a-unit"),
        pytest.param("kubernetes", {"termination_grace_period_seconds": 5}, "5", id="no-time-left"),
        pytest.param("kubernetes", {"env": {"HF_TOKEN": "hf_x"}}, "hf_x", id="token-in-clear-text"),
        pytest.param("kubernetes", {"env.HF_TOKEN": "hf_x"}, "env.HF_TOKEN", id="token-by-a-dot"),
        pytest.param(
            "docker", {"device_requests": [{"count": -1, "capabilities": [["gpu"]]}]}, "",
            id="docker-gpu",
        ),
        pytest.param("docker", {"env": {"HF_TOKEN": "hf_x"}}, "hf_x", id="docker-token"),
        pytest.param(
            "docker", {"env": {"HF_TOKEN": "{{ prefect.blocks.secret.hf-token }}"}}, "",
            id="docker-token-by-reference",
        ),
        pytest.param(
            "docker", {"mlflow_tracking_uri": "sqlite:///mlflow.db"}, "sqlite",
            id="store-inside-the-container",
        ),
    ],
)  # fmt: skip
def test_job_variables_are_checked_by_the_server(pools, deployment, pool, variables, named):
    body = {"work_pool_name": f"subtext-{pool}", "job_variables": {**MLFLOW, **variables}}
    path = f"/deployments/{deployment['id']}"
    if not named:
        call(pools, "PATCH", path, body)
        return
    with pytest.raises(Exception, match="409") as refused:
        call(pools, "PATCH", path, body)
    assert named in refused.value.response.json()["detail"]


def test_a_run_without_the_address_of_mlflow_is_refused(pools, deployment):
    path = f"/deployments/{deployment['id']}"
    call(pools, "PATCH", path, {"work_pool_name": "subtext-kubernetes", "job_variables": {}})
    with pytest.raises(Exception, match="422") as refused:
        call(pools, "POST", f"{path}/create_flow_run", {})
    assert "mlflow_tracking_uri" in refused.value.response.json()["detail"]


def test_sigterm_reaches_the_flow_and_the_run_waits_for_another_container(pools, tmp_path):
    """What a container runs, without the container: `prefect flow-run execute` and its SIGTERM."""
    (tmp_path / "patient.py").write_text(FLOW)
    made = pools.run([sys.executable, str(tmp_path / "patient.py")], {}, 120)
    assert made.returncode == 0, made.stdout + made.stderr
    run_id = start_run(pools, "patient/container", {"folder": str(tmp_path)})

    with executed(pools, run_id, tmp_path) as first:
        try:
            deadline = time.monotonic() + 60
            while not (tmp_path / "started").exists():
                assert first.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            first.send_signal(signal.SIGTERM)
            assert first.wait(60) == 0
        finally:
            (tmp_path / "release").touch()  # whatever was not stopped ends by itself
    assert (tmp_path / "saved").read_text() == "TerminationSignal"
    assert state_of(pools, run_id)["name"] == "AwaitingRetry"

    with executed(pools, run_id, tmp_path) as second:
        assert second.wait(60) == 0
    wait_for_state(pools, run_id, "Completed", 10)


def executed(server: PrefectServer, run_id: str, folder: Path) -> subprocess.Popen[bytes]:
    image = (CHECKOUT / "deploy" / "Dockerfile").read_text("utf-8")
    behaviour = re.search(r"PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR=(\w+)", image)
    assert behaviour
    env = {
        **os.environ, **server.environment,
        "PREFECT__FLOW_RUN_ID": run_id,
        "PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR": behaviour[1],
    }  # fmt: skip
    command = [sys.executable, "-m", "prefect", "flow-run", "execute"]
    return subprocess.Popen(command, cwd=folder, env=env)
