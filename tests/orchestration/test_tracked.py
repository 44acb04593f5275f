"""MLflow, Prefect and the exit code say the same of how a flow run ended."""

import logging
import signal
import sys

import pytest
from mlflow import MlflowClient
from support.corpus import write_corpus

import tasks.tracking
from subtext import strict_json, tracking
from subtext.errors import TrackingError, TrainingError
from subtext.run_dir import RunDir

pytestmark = pytest.mark.slow

# Each case runs in a process of its own: Prefect passes a signal on to the process it came to.
# Where the tests run in the background, children inherit that SIGINT is ignored.
AS_ON_A_TERMINAL = "signal.signal(signal.SIGINT, signal.default_int_handler)"
FLOW = """
import os, signal
from prefect import flow
from prefect.runtime import flow_run
from subtext.errors import TrainingError, TrainingStoppedError
from subtext.prepare import prepare_run
from tasks.tracking import tracked

run = prepare_run("cpu", None, default_run_id="run-1")

@flow(name="tracked")
def work():
    print("flow run", flow_run.get_id(), flush=True)
    with tracked(str(run.path)):
        {last_step}

work()
"""


def test_a_store_that_is_gone_does_not_hide_what_ended_the_work(monkeypatch, caplog):
    def gone(*_):
        raise TrackingError("no MLflow")

    monkeypatch.setattr(tasks.tracking, "start_tracking", lambda _: "1")
    monkeypatch.setattr(tracking, "end_run", gone)
    logger = logging.getLogger("test_tracked")
    monkeypatch.setattr(tasks.tracking, "get_run_logger", lambda: logger)
    with pytest.raises(TrainingError, match="loss is NaN"), tasks.tracking.tracked("runs/x"):
        raise TrainingError("loss is NaN")
    assert "no MLflow" in caplog.text
    with pytest.raises(TrackingError, match="no MLflow"), tasks.tracking.tracked("runs/x"):
        pass


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    write_corpus(home / "data" / "mustard")
    return home


@pytest.mark.parametrize(
    ("last_step", "prefect", "status", "code"),
    [
        pytest.param("pass", "Completed", "FINISHED", 0, id="all-steps-done"),
        pytest.param("raise TrainingError('NaN')", "Failed", "FAILED", 1, id="step-raised"),
        pytest.param("raise TrainingStoppedError('no_signal')", "Failed", "FAILED", 1, id="alarm"),
        pytest.param("raise SystemExit(3)", "Crashed", "FAILED", 3, id="exit-in-a-step"),
        pytest.param(
            "os.kill(os.getpid(), signal.SIGTERM)", "Crashed", "KILLED", -signal.SIGTERM,
            id="sigterm",
        ),
        pytest.param(
            f"{AS_ON_A_TERMINAL}; os.kill(os.getpid(), signal.SIGINT)", "Crashed", "KILLED",
            -signal.SIGINT, id="ctrl-c",
        ),
    ],
)  # fmt: skip
def test_all_three_agree(server, home, last_step, prefect, status, code):
    program = FLOW.format(last_step=last_step)
    # One store for all cases, as its first use costs seconds; the run is resumed by the next case.
    result = server.run([sys.executable, "-c", program], {"SUBTEXT_HOME": str(home)}, 120)
    assert result.returncode == code, result.stderr
    record = strict_json.read(RunDir(home / "runs" / "run-1").tracking)
    tracked = MlflowClient(record["uri"]).get_run(record["run_id"])
    assert tracked.info.status == status
    stopped = "no_signal" if "TrainingStoppedError" in last_step else None
    assert tracked.data.tags.get("stopped_by_alarm") == stopped
    [said] = [line for line in result.stdout.splitlines() if line.startswith("flow run ")]
    assert server.state_of(said.removeprefix("flow run ")) == prefect
