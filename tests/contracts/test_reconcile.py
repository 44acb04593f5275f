"""What a dead process left RUNNING in MLflow is ended; what lives, or may live, is left alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import psutil
import pytest
from support.started_run import make_run

from subtext import tracking
from subtext.run_dir import RunDir

# Starts a run, says so, and waits to be killed.
START_AND_WAIT = """
import sys, time
from pathlib import Path
from subtext import tracking
from subtext.run_dir import RunDir
tracking.start_run(RunDir(Path(sys.argv[1])), "flow-of-the-dead", "calm-otter")
print("started", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBTEXT_HOME", str(home))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield home


@pytest.fixture
def store(home: Path) -> mlflow.MlflowClient:
    return mlflow.MlflowClient(tracking.tracking_uri())


@pytest.fixture
def run(home: Path, request: pytest.FixtureRequest) -> RunDir:
    """A run of this process, which lives."""
    run = make_run(home / "runs" / request.node.name.replace("[", "-").strip("]"))
    tracking.start_run(run, "flow-1", "calm-otter")
    return run


@pytest.fixture
def waiting(home: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process that has started the run `other`."""
    make_run(home / "runs" / "other")
    process = subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT, str(home / "runs" / "other")],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    yield process
    process.kill()
    process.wait()


def test_the_run_of_a_killed_process_is_ended_with_the_reason_and_can_go_on(
    home: Path, store: mlflow.MlflowClient, run: RunDir, waiting: subprocess.Popen[str]
) -> None:
    other = RunDir(home / "runs" / "other")
    run_id = tracking.mlflow_run_id(other)
    assert tracking.end_dead_runs(run) == {}
    assert store.get_run(run_id).info.status == "RUNNING", "its process lives"

    waiting.kill()
    waiting.wait()
    assert store.get_run(run_id).info.status == "RUNNING"
    ended = tracking.end_dead_runs(run)
    assert list(ended) == ["flow-of-the-dead"]
    found = store.get_run(run_id)
    assert found.info.status == "FAILED"
    assert found.info.end_time
    assert found.data.tags["ended_because"] == ended["flow-of-the-dead"]
    assert f"pid {waiting.pid}" in found.data.tags["ended_because"]
    assert store.get_run(tracking.mlflow_run_id(run)).info.status == "RUNNING"
    assert tracking.end_dead_runs(run) == {}

    assert tracking.start_run(other, "flow-2", "bold-heron") == run_id
    resumed = store.get_run(run_id)
    assert resumed.info.status == "RUNNING"
    assert "ended_because" not in resumed.data.tags
    tracking.end_run(other, "FINISHED")


OWN_START = psutil.Process().create_time()


@pytest.mark.parametrize(
    ("tags", "status"),
    [
        pytest.param({"pid": "1", "process_started": "1.0"}, "FAILED", id="pid-of-a-later-process"),
        pytest.param(
            {"process_started": f"{OWN_START + 0.5}"}, "RUNNING", id="clock-was-corrected-since"
        ),
        pytest.param({"host": "elsewhere", "process_started": "1.0"}, "RUNNING", id="other-host"),
        pytest.param(
            {"pid_namespace": "pid:[1]", "process_started": "1.0"}, "RUNNING", id="other-container"
        ),
        pytest.param({"process_started": ""}, "RUNNING", id="start-not-known"),
        pytest.param({"pid": "x"}, "RUNNING", id="pid-not-known"),
    ],
)
def test_only_what_is_surely_dead_is_ended(
    home: Path, store: mlflow.MlflowClient, run: RunDir, tags: dict[str, str], status: str
) -> None:
    other = make_run(run.path.with_name(f"{run.run_id}-other"))
    run_id = tracking.start_run(other, "flow-1", "calm-otter")
    for key, value in tags.items():
        store.set_tag(run_id, key, value)
    tracking.end_dead_runs(run)
    assert store.get_run(run_id).info.status == status
    tracking.end_run(other, "FINISHED")


def test_ended_runs_stay_as_they_ended(store: mlflow.MlflowClient, home: Path, run: RunDir) -> None:
    other = make_run(home / "runs" / "killed-before")
    run_id = tracking.start_run(other, "flow-1", "calm-otter")
    store.set_tag(run_id, "process_started", "1.0")
    tracking.end_run(other, "KILLED")
    assert tracking.end_dead_runs(run) == {}
    assert store.get_run(run_id).info.status == "KILLED"
