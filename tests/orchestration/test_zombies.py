"""Worker and flow killed together: the automation of deploy/zombies.yaml ends the run.

Nobody else would: the run would say Running for ever.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.prefect_api import call, start_run, state_of, wait_for_state
from support.prefect_server import CHECKOUT, PrefectServer

POOL = "zombies-pool"
DEPLOYMENT = "sleeper/zombies"
COMMAND = "prefect automation create --from-file deploy/zombies.yaml"
HEARTBEAT_S = 30  # the least that Prefect takes
WITHIN_S = 45  # shipped: five heartbeats, which would be a test of minutes
FLOW = '''
import os, time
from pathlib import Path
from prefect import flow

@flow
def sleeper(folder: str, name: str) -> None:
    """Write the pid, then wait to be released."""
    (Path(folder) / f"{name}.tmp").write_text(str(os.getpid()))
    (Path(folder) / f"{name}.tmp").rename(Path(folder) / f"{name}.pid")
    while not (Path(folder) / f"{name}.release").exists():
        time.sleep(0.1)

if __name__ == "__main__":
    sleeper.from_source(str(Path(__file__).parent), "sleeper.py:sleeper").deploy(
        "zombies", work_pool_name="zombies-pool", print_next_steps=False
    )
'''

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]


@pytest.fixture
def deployed(server, tmp_path) -> PrefectServer:
    server.cli("work-pool", "create", POOL, "--type", "process")
    (tmp_path / "sleeper.py").write_text(FLOW)
    result = server.run([sys.executable, str(tmp_path / "sleeper.py")], {}, 120)
    assert result.returncode == 0, result.stdout + result.stderr
    return server


@pytest.fixture
def automation(server) -> Iterator[dict]:
    """The shipped automation, made by the documented command, with a shorter patience."""
    assert f"    {COMMAND}\n" in (CHECKOUT / "docs" / "deploy.md").read_text("utf-8")
    server.cli(*COMMAND.split()[1:])
    [made] = call(server, "POST", "/automations/filter", {})
    made["trigger"]["within"] = WITHIN_S
    kept = ("name", "description", "enabled", "trigger", "actions")
    call(server, "PUT", f"/automations/{made['id']}", {key: made[key] for key in kept})
    yield made
    call(server, "DELETE", f"/automations/{made['id']}")


@pytest.fixture
def worker(deployed, tmp_path) -> Iterator[subprocess.Popen[bytes]]:
    env = {
        **deployed.environment,
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S),
        "PREFECT_WORKER_QUERY_SECONDS": "2",
    }
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL]
    with (tmp_path / "worker.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=env, stdout=log, stderr=log, start_new_session=True
        )
        yield process
        process.kill()
        process.wait()


def wait_until(met, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, f"{what}: not after {seconds} s"
        time.sleep(0.3)


def has_said_that_it_lives(server: PrefectServer, run_id: str) -> bool:
    wanted = {
        "filter": {
            "event": {"name": ["prefect.flow-run.heartbeat"]},
            "resource": {"id": [f"prefect.flow-run.{run_id}"]},
        }
    }
    return bool(call(server, "POST", "/events/filter", wanted)["events"])


def test_only_the_run_without_a_process_becomes_crashed(
    deployed, automation, worker, tmp_path: Path
):
    (tmp_path / "finished.release").touch()
    runs = {
        name: start_run(deployed, DEPLOYMENT, {"folder": str(tmp_path), "name": name})
        for name in ("finished", "killed", "orphan")
    }
    for name in ("killed", "orphan"):
        wait_until((tmp_path / f"{name}.pid").exists, 90, f"{name} runs")
    wait_for_state(deployed, runs["finished"], "Completed", 90)
    for name, run_id in runs.items():
        wait_until(lambda run_id=run_id: has_said_that_it_lives(deployed, run_id), 30, name)

    worker.kill()
    os.kill(int((tmp_path / "killed.pid").read_text()), signal.SIGKILL)
    orphan = int((tmp_path / "orphan.pid").read_text())
    try:
        state = wait_for_state(deployed, runs["killed"], "Crashed", 150)
        assert "subtext-zombies" in state["message"]
        # Both ran as long as the one that was killed, and longer than the automation waits.
        assert state_of(deployed, runs["finished"])["name"] == "Completed"
        assert state_of(deployed, runs["orphan"])["name"] == "Running"
        (tmp_path / "orphan.release").touch()
        wait_for_state(deployed, runs["orphan"], "Completed", 30)
    except BaseException:
        os.kill(orphan, signal.SIGKILL)
        raise

    crashed = {"state": {"type": "CRASHED", "message": "too late"}}
    answer = call(deployed, "POST", f"/flow_runs/{runs['finished']}/set_state", crashed)
    assert answer["status"] == "ABORT", "a heartbeat that comes late crashes no finished run"
    assert state_of(deployed, runs["finished"])["name"] == "Completed"
