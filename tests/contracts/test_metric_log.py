"""Metrics are in the run directory first, and all of them reach MLflow, whatever fails."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from support.mlflow_server import MlflowServer, mlflow_server
from support.ports import closed_port
from support.started_run import make_run

from subtext import tracking
from subtext.errors import TrackingError
from subtext.run_dir import RunDir
from subtext.tracking.metric_log import read_metric_log
from subtext.tracking.store import check_reachable

# Writes steps from the second argument on until it is killed, to a store that nobody serves.
WRITE_ON = """
import sys, time
from pathlib import Path
from subtext.run_dir import RunDir
from subtext.tracking import MetricWriter
writer = MetricWriter(RunDir(Path(sys.argv[1])))
for step in range(int(sys.argv[2]), 10**6):
    writer.write(step, {"train/reward": step / 8, "train/loss": -step / 8})
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBTEXT_HOME", str(home))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield home


@pytest.fixture
def run(home: Path, request: pytest.FixtureRequest) -> RunDir:
    run = make_run(home / "runs" / request.node.name)
    tracking.start_run(run, "flow-1", "calm-otter")
    return run


def history(run: RunDir, key: str = "train/reward") -> list[tuple[int, float]]:
    """What MLflow has of a metric, oldest step first."""
    store = mlflow.MlflowClient(tracking.tracking_uri())
    found = store.get_metric_history(tracking.mlflow_run_id(run), key)
    return sorted((item.step, item.value) for item in found)


def written(run: RunDir, key: str = "train/reward") -> list[tuple[int, float]]:
    """What the file has of it."""
    records = read_metric_log(run.metric_log)
    return [(record.step, record.metrics[key]) for record in records if key in record.metrics]


def test_every_finite_value_is_in_the_file_and_in_mlflow(run: RunDir) -> None:
    writer = tracking.MetricWriter(run)
    writer.write(0, {"train/reward": 0.25, "train/kl": math.nan})
    assert written(run) == [(0, 0.25)], "written before anything is sent"
    writer.write(5, {"train/reward": 0.5, "train/loss (mean)": 1.0, "train/kl": math.inf})
    writer.close()
    assert history(run) == written(run) == [(0, 0.25), (5, 0.5)]
    store = mlflow.MlflowClient(tracking.tracking_uri())
    metrics = store.get_run(tracking.mlflow_run_id(run)).data.metrics
    assert set(metrics) == {"train/reward", "train/loss _mean_"}


def test_the_file_is_strict_json_lines(run: RunDir) -> None:
    writer = tracking.MetricWriter(run)
    writer.write(1, {"train/reward": 0.5, "train/kl": math.nan})
    writer.close()
    (line,) = run.metric_log.read_text().splitlines()
    record = json.loads(line, parse_constant=pytest.fail)
    assert abs(record.pop("time_ms") / 1000 - time.time()) < 3600
    assert record == {"metrics": {"train/reward": 0.5}, "step": 1}


def test_a_repeated_step_keeps_its_first_value_everywhere(run: RunDir) -> None:
    before = tracking.MetricWriter(run)
    for step in (1, 2, 3):
        before.write(step, {"train/reward": step / 10})
    before.close()
    after = tracking.MetricWriter(run)  # training resumed from a checkpoint at step 1
    for step in (2, 3, 4):
        after.write(step, {"train/reward": 0.9, "train/accuracy": 1.0})
    after.close()
    assert history(run) == written(run) == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.9)]
    assert [step for step, _ in history(run, "train/accuracy")] == [2, 3, 4]
    assert tracking.send_metrics(run) == 0


def test_a_killed_process_loses_nothing_and_the_next_goes_on(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = {**os.environ, "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{closed_port()}"}
    killed = subprocess.Popen([sys.executable, "-c", WRITE_ON, str(run.path), "0"], env=nobody)
    while len(written(run)) < 20:
        assert killed.poll() is None
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    whole = run.metric_log.read_bytes()
    whole = whole[: whole.rfind(b"\n") + 1]
    n_before = len(whole.splitlines())
    run.metric_log.write_bytes(whole + b'{"metrics": {"train/reward": 0.')
    with caplog.at_level(logging.WARNING):
        writer = tracking.MetricWriter(run)
    assert f"line {n_before + 1} is left out" in caplog.text
    for step in (n_before - 1, n_before):
        writer.write(step, {"train/reward": step / 8, "train/loss": -step / 8})
    writer.close()
    everything = [(step, step / 8) for step in range(n_before + 1)]
    assert history(run) == written(run) == everything
    assert history(run, "train/loss") == [(step, -value) for step, value in everything]


def test_a_last_line_that_lacks_nothing_but_its_end_is_kept(run: RunDir) -> None:
    record = '{"metrics": {"train/reward": 0.5}, "step": %d, "time_ms": 1}'
    run.metric_log.write_text(f"{record % 1}\n{record % 2}")
    writer = tracking.MetricWriter(run)
    writer.write(2, {"train/reward": 0.25})
    writer.write(3, {"train/reward": 0.75})
    writer.close()
    assert history(run) == written(run) == [(1, 0.5), (2, 0.5), (3, 0.75)]


def test_lines_that_are_no_records_cost_only_themselves(
    run: RunDir, caplog: pytest.LogCaptureFixture
) -> None:
    good = '{"metrics": {"train/reward": 0.5}, "step": %d, "time_ms": 1}'
    bad = ["", "[]", '{"metrics": {"train/reward": NaN}, "step": 2, "time_ms": 1}', "\xff"]
    run.metric_log.write_bytes("\n".join([good % 1, *bad, good % 3, ""]).encode("latin-1"))
    with caplog.at_level(logging.WARNING):
        assert tracking.send_metrics(run) == 2
    assert history(run) == [(1, 0.5), (3, 0.5)]
    assert len(caplog.messages) == len(bad)


def test_a_server_that_nobody_runs_is_one_warning_without_its_password(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:hunter2@127.0.0.1:{closed_port()}")
    writer = tracking.MetricWriter(run)
    for step in range(5):
        writer.write(step, {"train/reward": 0.5})
    with pytest.raises(TrackingError, match=r"^5 metric values were not sent"):
        writer.close(limit_s=6)
    (warning,) = [item.message for item in caplog.records if "are kept until" in item.message]
    assert "127.0.0.1" in warning
    assert "hunter2" not in warning
    assert len(written(run)) == 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as running:
        yield running


@pytest.mark.slow
def test_a_host_name_that_the_server_refuses_is_found_before_training(server: MlflowServer) -> None:
    check_reachable(server.url)
    # The same address, written as one that the server does not take for its own.
    with pytest.raises(TrackingError, match=r"403.*--allowed-hosts.*'127\.1:\*'"):
        check_reachable(server.url.replace("127.0.0.1", "127.1"))


@pytest.mark.slow
def test_a_server_that_hangs_then_dies_then_comes_back(
    home: Path, server: MlflowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    run = make_run(home / "runs" / "server")
    tracking.start_run(run, "flow-1", "calm-otter")
    writer = tracking.MetricWriter(run)
    writer.write(1, {"train/reward": 1 / 8})
    server.hang()
    for step in range(2, 40):
        writer.write(step, {"train/reward": step / 8})
    assert len(written(run)) == 39, "training went on: the server answers nothing"
    server.go_on()
    writer.write(40, {"train/reward": 40 / 8})
    writer.close(limit_s=60)
    assert history(run) == written(run)

    writer = tracking.MetricWriter(run)
    server.kill()
    for step in range(41, 50):
        writer.write(step, {"train/reward": step / 8})
    with pytest.raises(TrackingError, match="9 metric values were not sent"):
        writer.close(limit_s=0)
    with pytest.raises(TrackingError, match="did not answer"):
        tracking.send_metrics(run)
    server.start()
    assert tracking.send_metrics(run) in (0, 9)  # 0: the closed writer was quicker
    assert history(run) == written(run) == [(step, step / 8) for step in range(1, 50)]
