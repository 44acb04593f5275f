"""`python -m flows.data_flow`: exit codes, what is said and shown, and what a signal leaves."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from prefect.states import Failed
from support.audio_corpus import write_audio_corpus, write_wav
from support.prefect_server import CHECKOUT, PrefectServer

from flows.command_line import data_main
from subtext import strict_json
from subtext.data.scenarios import load_scenarios
from subtext.errors import DownloadError
from tasks.corpus import fetch, measure, pivot, validate
from tasks.retry import can_retry

N_CLIPS = 30
RUN_LIMIT_S = 300
STOP_LIMIT_S = 30
DEMO = CHECKOUT / "data" / "demo"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SUBTEXT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "prosody"


@pytest.fixture
def corpus(tmp_path) -> Path:
    write_audio_corpus(tmp_path / "corpus", N_CLIPS)
    return tmp_path / "corpus"


def spoil(corpus: Path) -> list[str]:
    """Two bad files, and an old prosody.json that must survive a failure; returns their clips."""
    missing, silent, *_ = strict_json.read(corpus / "sarcasm_data.json")
    (corpus / "audio" / f"{missing}.wav").unlink()
    write_wav(corpus / "audio" / f"{silent}.wav", np.zeros(16_000))
    (corpus / "prosody.json").write_text("old\n")
    return [missing, silent]


def run_flow(server: PrefectServer, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.data_flow", *arguments]
    result = server.run(command, {"SUBTEXT_CACHE": os.environ["SUBTEXT_CACHE"]}, RUN_LIMIT_S)
    said = result.stdout + result.stderr
    assert "Traceback" not in said, said
    assert "Error encountered when computing cache key" not in said
    return result


def artifacts(server: PrefectServer, key: str) -> list[dict]:
    """The rows of the newest table `key`."""
    said = server.cli("artifact", "inspect", key, "--limit", "1", "--output", "json")
    return json.loads(json.loads(said)[0]["data"])


@pytest.mark.slow
def test_a_corpus_becomes_ready_for_training(server, corpus):
    result = run_flow(server, "--root", str(corpus), "--workers", "2")
    assert result.returncode == 0, result.stderr
    assert "flows.train_flow" in result.stdout
    scenarios = load_scenarios(corpus)
    assert all(clip["prosody"] for clip in scenarios.values())
    assert strict_json.read(corpus / "pivot_set.json")["counts"]["clips"] == N_CLIPS
    assert artifacts(server, "failures") == []
    pivot = artifacts(server, "pivot-set")
    assert {row["clips"] for row in pivot} >= {"misleading", "ambiguous", "text easy"}
    # The page takes its columns from the first row.
    assert all({"clips", "all", "sarcastic", "sincere"} <= row.keys() for row in pivot)
    assert "100" in server.cli("artifact", "inspect", "measure-progress")
    assert "30: 15 sarcastic, 15 sincere" in server.cli("artifact", "inspect", "validation")


@pytest.mark.slow
def test_too_few_clips_for_a_pivot_set_go_on_without_one(server, tmp_path):
    write_audio_corpus(tmp_path, 4)
    result = run_flow(server, "--root", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "Going on without a Pivot Set" in result.stdout + result.stderr
    assert "there is no Pivot Set" in result.stdout
    assert not (tmp_path / "pivot_set.json").exists()
    assert artifacts(server, "pivot-set") == []


@pytest.mark.slow
def test_clips_that_cannot_be_measured_end_the_flow_failed_with_their_list(server, corpus):
    bad = spoil(corpus)
    result = run_flow(server, "--root", str(corpus))
    assert result.returncode == 1
    for clip_id, reason in zip(bad, ("no sound file", "silent"), strict=True):
        line = next(x for x in result.stderr.splitlines() if x.startswith("  -") and clip_id in x)
        assert reason in line
    assert "--allow-missing" in result.stderr
    assert (corpus / "prosody.json").read_text() == "old\n"
    assert not (corpus / "pivot_set.json").exists()
    assert len(artifacts(server, "failures")) == 2


@pytest.mark.slow
def test_with_allow_missing_it_completes_with_the_list(server, corpus):
    bad = spoil(corpus)
    result = run_flow(server, "--root", str(corpus), "--allow-missing")
    assert result.returncode == 0, result.stderr
    assert all(clip_id in result.stdout for clip_id in bad)
    assert [row["what"] for row in artifacts(server, "failures")] == bad
    without = [i for i, clip in load_scenarios(corpus).items() if clip["prosody"] is None]
    assert without == bad


# The pool's processes import this script too, so that clips are slow there.
SLOW = """
import signal, sys, time
from flows.command_line import data_main
from flows.data_flow import data_flow
from subtext.prosody import measure

real = measure.measure_clip

def measure_clip(*arguments):
    time.sleep(0.3)
    return real(*arguments)

measure.measure_clip = measure_clip
if __name__ == "__main__":
    # Where the tests run in the background, children inherit that SIGINT is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(data_main(data_flow, sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_a_stopped_run_keeps_what_it_measured(server, corpus, cache, tmp_path, name):
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    process = subprocess.Popen(
        [sys.executable, str(script), "--root", str(corpus), "--workers", "2"],
        env={**server.environment, "SUBTEXT_CACHE": str(cache.parent), "PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while len(list(cache.rglob("*.json"))) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    # As a terminal does: to every process of the group.
    os.killpg(process.pid, getattr(signal, name))
    said, _ = process.communicate(timeout=60)
    if name == "SIGINT":
        assert process.returncode == 130, said
        assert "Traceback" not in said, said
        assert "kept" in said
    finished = len(list(cache.rglob("*.json")))
    assert 3 <= finished < N_CLIPS
    assert not (corpus / "prosody.json").exists()

    result = run_flow(server, "--root", str(corpus), "--workers", "2")
    assert result.returncode == 0
    assert f"{finished} known from before" in result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_stopped_run_without_a_server_ends_at_once_and_stops_its_own(
    corpus, cache, tmp_path, name
):
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    inherited = {key: os.environ[key] for key in os.environ if not key.startswith("PREFECT_")}
    environment = {
        **inherited,
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PYTHONPATH": str(CHECKOUT),
        "OMP_NUM_THREADS": "1",
    }
    log = tmp_path / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, str(script), "--root", str(corpus), "--workers", "2"],
            env=environment, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + RUN_LIMIT_S
        while len(list(cache.rglob("*.json"))) < 3:
            assert time.monotonic() < deadline
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        children = psutil.Process(process.pid).children(recursive=True)
        servers = [child for child in children if "uvicorn" in child.cmdline()]
        assert servers, "no temporary server"
        if name == "SIGINT":  # as a terminal does: to every process of the group
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.Signals[name])
        process.wait(STOP_LIMIT_S)
        # Killed, it stops nobody itself; its server waits for the end of it.
        _, alive = psutil.wait_procs(servers if name == "SIGKILL" else children, timeout=10)
        assert not alive
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    said = log.read_text()
    if name == "SIGKILL":
        assert process.returncode == -signal.SIGKILL
        return
    assert process.returncode == 130, said
    assert "Interrupted. Clips measured so far are kept." in said
    assert "Traceback" not in said, said


@pytest.mark.slow
def test_the_demo_corpus_from_its_sound_is_the_committed_one(server, tmp_path):
    if not (DEMO / "audio").is_dir():
        pytest.skip("data/demo has no sound")
    copy = tmp_path / "demo"
    shutil.copytree(DEMO, copy)
    (copy / "prosody.json").unlink()
    result = run_flow(server, "--root", str(copy), "--workers", "2")
    assert result.returncode == 0, result.stderr
    made, committed = (strict_json.read(root / "prosody.json") for root in (copy, DEMO))
    if made["extractor"] == committed["extractor"]:
        assert (copy / "prosody.json").read_bytes() == (DEMO / "prosody.json").read_bytes()
    assert made["clips"].keys() == committed["clips"].keys()
    for clip_id, record in made["clips"].items():
        assert close(record, committed["clips"][clip_id]), clip_id


def close(one: object, other: object) -> bool:
    """Equal in shape, numbers within 1e-3."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-3)
    return one == other


def never(*_, **__):
    raise AssertionError("the flow was started")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--workers", "-1"], ["n_workers = -1", "0 for as many"], id="negative"),
        pytest.param(["--root", "no/such/folder"], ["no/such/folder"], id="no-folder"),
        pytest.param(["--root", "silent"], ["audio", "is no folder"], id="no-sounds"),
        pytest.param(["--root", "broken"], ["sarcasm_data.json", "not JSON"], id="broken-clips"),
    ],
)
def test_what_cannot_work_is_refused_before_prefect_starts(
    arguments, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("SUBTEXT_HOME", str(tmp_path))
    write_audio_corpus(tmp_path / "silent", 2)
    shutil.rmtree(tmp_path / "silent" / "audio")
    write_audio_corpus(tmp_path / "broken", 2)
    (tmp_path / "broken" / "sarcasm_data.json").write_text("{")
    assert data_main(never, arguments) == 2
    message = capsys.readouterr().err
    assert all(text in message for text in said), message


def test_an_unknown_source_is_refused(capsys):
    with pytest.raises(SystemExit) as caught:
        data_main(never, ["--source", "friends"])
    assert caught.value.code == 2
    assert "mustard" in capsys.readouterr().err


@pytest.mark.parametrize("retryable", [True, False])
def test_only_the_fetch_is_tried_again_and_only_where_it_helps(retryable):
    state = Failed(data=DownloadError("Hub refused", [], retryable=retryable))
    assert fetch.retries > 0
    assert fetch.retry_condition_fn is can_retry
    assert can_retry(fetch, None, state) is retryable
    assert [task.retries for task in (measure, pivot, validate)] == [0, 0, 0]
