"""One process at a time works on a run, whatever becomes of the one before."""

from __future__ import annotations

import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.corpus import write_corpus

from subtext.errors import ConfigError
from subtext.prepare import check_run, prepare_run
from subtext.run_dir import RunDir
from subtext.run_lock import working_on

NAMED: dict[str, Any] = {
    "data": {"root": "corpus"},
    "model": {"device": "cpu"},
    "training": {"run_id": "shared"},
}
HOLD = """
import sys, time
from pathlib import Path
from subtext.run_dir import RunDir
from subtext.run_lock import working_on
with working_on(RunDir(Path(sys.argv[1]))):
    print("works", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    write_corpus(tmp_path / "corpus", n_clips=40)
    monkeypatch.setenv("SUBTEXT_HOME", str(tmp_path))
    return prepare_run("demo", NAMED, default_run_id="unused")


@contextmanager
def another_process(run: RunDir) -> Iterator[subprocess.Popen[str]]:
    """A process that works on `run` until its standard input ends."""
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "works\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_start_is_refused_in_words(run):
    config = run.config.read_bytes()
    cheaper = {**NAMED, "training": {"run_id": "shared", "price_per_hour": 2.0}}
    with another_process(run) as other:
        said = f"'shared': process {other.pid} on {platform.node()} works on this run"
        for start in (
            lambda: prepare_run("demo", cheaper, default_run_id="unused"),
            lambda: check_run("demo", cheaper),
            lambda: working_on(run).__enter__(),
        ):
            with pytest.raises(ConfigError) as caught:
                start()
            assert said in str(caught.value)
            assert "choose another training.run_id" in str(caught.value)
    assert run.config.read_bytes() == config


@pytest.mark.parametrize("end", ["at its end", "killed"])
def test_the_run_is_free_when_the_process_is_gone(run, end):
    with another_process(run) as other:
        if end == "killed":
            other.send_signal(signal.SIGKILL)
        else:
            other.communicate(timeout=60)
        assert other.wait(60) == (-signal.SIGKILL if end == "killed" else 0)
        with working_on(run):
            pass
    assert prepare_run("demo", NAMED, default_run_id="unused") == run


def test_the_same_process_has_it_once(run):
    with working_on(run), pytest.raises(ConfigError, match="works on this run"), working_on(run):
        pass


def test_who_has_it_is_unknown_where_the_note_is_not_yet_written(run):
    with another_process(run):
        run.lock.with_suffix(".json").unlink()
        with pytest.raises(ConfigError, match="another process works on this run"), working_on(run):
            pass
