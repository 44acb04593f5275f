"""Runs on the same clips that start at the same moment, in one store."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlflow
import pytest
from support.started_run import make_run

from subtext import tracking
from subtext.tracking.store import client

N_RUNS, N_ROUNDS = 8, 4


@pytest.fixture
def often_switching():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
def test_all_start_and_share_one_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, often_switching: None
) -> None:
    monkeypatch.setenv("SUBTEXT_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for round_ in range(N_ROUNDS):
        # Another experiment a round: each has its own datasets, so that the first is made anew.
        knobs = {"tracking": {"experiment": f"round-{round_}"}}
        runs = [make_run(tmp_path / "runs" / f"{round_}-{n}", **knobs) for n in range(N_RUNS)]
        client(tracking.tracking_uri()).create_experiment(f"round-{round_}")
        together = threading.Barrier(N_RUNS)

        def start(run, together=together):
            together.wait()
            return tracking.start_run(run, "flow-1", "calm-otter")

        with ThreadPoolExecutor(N_RUNS) as pool:
            ids = list(pool.map(start, runs))
        assert len(set(ids)) == N_RUNS
        store = mlflow.MlflowClient(tracking.tracking_uri())
        digests = {store.get_run(run_id).inputs.dataset_inputs[0].dataset.digest for run_id in ids}
        assert len(digests) == 1
