"""What the Prefect UI is told, and that telling it can't end the work."""

import logging

import pytest
from prefect.logging import disable_run_logger

from subtext import strict_json
from subtext.evaluation.leaks import leak_report
from subtext.progress import Progress
from subtext.run_dir import RunDir
from tasks import artifacts
from tasks.artifacts import (
    PrefectProgress,
    artifact_key,
    progress_line,
    show_leaks,
    show_places,
    show_results,
)


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        pytest.param(
            Progress("grpo", 3, 60, {"train/reward": 0.4125, "train/accuracy": 0.5}),
            "grpo 3/60: reward 0.412, accuracy 0.5",
            id="training",
        ),
        pytest.param(
            Progress("warm_start", 1, 2, {"warm_start/loss": 3.0, "warm_start/epoch": 0.1}),
            "warm_start 1/2: loss 3",
            id="only-the-telling-metrics",
        ),
        pytest.param(Progress("judge base", 7, 7), "judge base 7/7", id="no-metrics"),
    ],
)
def test_progress_line(progress, line):
    assert progress_line(progress) == line


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param("judge base progress", "judge-base-progress", id="spaces"),
        pytest.param("warm_start progress", "warm-start-progress", id="underscore"),
        pytest.param("_A (b)", "a-b", id="edges"),
    ],
)
def test_artifact_key(text, key):
    assert artifact_key(text) == key


class Server:
    """Stands for Prefect's artifact functions: counts what arrives, or is down."""

    def __init__(self, monkeypatch, *, down: bool) -> None:
        self.calls = []
        for name in ("progress", "table", "markdown"):
            monkeypatch.setattr(artifacts, f"create_{name}_artifact", self._call)
        monkeypatch.setattr(artifacts, "update_progress_artifact", self._call)
        self._down = down

    def _call(self, *arguments, **named):
        self.calls.append((arguments, named))
        if self._down:
            raise OSError("no Prefect server")
        return artifacts.UUID(int=len(self.calls))


def test_a_server_that_is_down_does_not_end_the_work(monkeypatch, tmp_path):
    server = Server(monkeypatch, down=True)
    with disable_run_logger():
        watch = PrefectProgress("demo-1")
        for step in range(1, 4):
            watch(Progress("grpo", step, 3))
        show_results(RunDir(tmp_path))
        show_places(RunDir(tmp_path))
        show_leaks(RunDir(tmp_path))
    assert len(server.calls) >= 2


@pytest.mark.parametrize(
    ("steps", "max_steps", "n_lines"),
    [
        pytest.param(range(1, 6), 5, 5, id="every-step-of-few"),
        pytest.param(range(1, 201), 200, 20, id="twenty-of-many"),
        pytest.param([*range(65_536, 10**7, 65_536), 10**7], 10**7, 20, id="bytes-in-chunks"),
    ],
)
def test_about_twenty_log_lines_whatever_is_counted(monkeypatch, caplog, steps, max_steps, n_lines):
    Server(monkeypatch, down=False)
    monkeypatch.setattr(artifacts, "get_run_logger", lambda: logging.getLogger("watched"))
    with caplog.at_level(logging.INFO, logger="watched"):
        watch = PrefectProgress("demo-1")
        for step in steps:
            watch(Progress("fetch", step, max_steps))
    assert len(caplog.messages) == n_lines
    assert caplog.messages[-1] == f"fetch {max_steps}/{max_steps}"


def test_few_updates_and_always_the_last(monkeypatch):
    server = Server(monkeypatch, down=False)
    with disable_run_logger():
        watch = PrefectProgress("demo-1")
        for step in range(1, 1001):
            watch(Progress("grpo", step, 1000))
    assert len(server.calls) < 20
    assert server.calls[-1][1]["progress"] == 100.0


def test_the_leak_report_becomes_a_table(monkeypatch, tmp_path):
    server = Server(monkeypatch, down=False)
    run = RunDir(tmp_path)
    clip = {"utterance": "Yes.", "context": [], "speaker": "A", "show": "X", "prosody": None}
    clips = {f"1_{index}": {**clip, "sarcasm": index % 2 == 0} for index in range(8)}
    split = {"kind": "random", "train": list(clips)[:4], "held_out": list(clips)[4:]}
    strict_json.write(run.leak_report, leak_report(clips, {**split, "data_digest": ""}))
    with disable_run_logger():
        show_leaks(run)
    ((rows, key, description), _) = server.calls[0]
    assert key == "leaks"
    assert {
        "predictor": "speaker",
        "accuracy": "0.500",
        "95 %": "0.15-0.85",
        "AUROC": "0.500",
    } in rows
    assert "100% of 4 held-out clips" in description
