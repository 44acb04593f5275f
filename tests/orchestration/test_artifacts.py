"""What the Prefect UI is told, and that telling it can't end the work."""

import logging
import threading

import pytest
from prefect.logging import disable_run_logger
from support.judged_run import LEAK_REPORT, judged_run

from subtext import strict_json
from subtext.evaluation.leaks import leak_report
from subtext.progress import Progress
from subtext.run_dir import RunDir
from tasks import artifacts
from tasks.artifacts import (
    PrefectProgress,
    artifact_key,
    progress_line,
    show_evaluation,
    show_folds,
    show_gate,
    show_leaks,
    show_places,
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
        pytest.param(Progress("judge step_13", 7, 7), "judge step_13 7/7", id="checkpoint"),
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


@pytest.fixture
def run(tmp_path):
    """A judged run with all that can be shown of it."""
    run = judged_run(tmp_path / "demo-1")
    strict_json.write(run.leak_report, LEAK_REPORT)
    record = {"run_id": "abc", "uri": "http://127.0.0.1:5001", "experiment_id": "7"}
    strict_json.write(run.tracking, record)
    reasons = [
        {"rule": "beats_base", "passed": True, "text": "Better than the base by 0.1 | at n = 40."},
        {"rule": "no_alarm", "passed": False, "text": "1 alarm."},
    ]
    strict_json.write(run.gate, {"decision": "stay", "reasons": reasons})
    return run


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


def test_a_server_that_is_down_does_not_end_the_work(monkeypatch, run):
    server = Server(monkeypatch, down=True)
    with disable_run_logger():
        watch = PrefectProgress("demo-1")
        for step in range(1, 4):
            watch(Progress("grpo", step, 3))
        watch.close(limit_s=0.1)
        for show in (show_evaluation, show_gate, show_places, show_leaks):
            n_calls = len(server.calls)
            show(run)
            assert len(server.calls) > n_calls


@pytest.mark.parametrize("show", [show_evaluation, show_gate, show_leaks, show_folds])
def test_a_broken_file_does_not_end_the_work(monkeypatch, caplog, tmp_path, show):
    server = Server(monkeypatch, down=False)
    monkeypatch.setattr(artifacts, "get_run_logger", lambda: logging.getLogger("watched"))
    for name in ("metrics.json", "gate.json", "leak_report.json"):
        (tmp_path / name).write_text("{")
    with caplog.at_level(logging.WARNING, logger="watched"):
        show(RunDir(tmp_path) if show is not show_folds else tmp_path / "metrics.json")
    assert len(caplog.messages) == 1
    assert server.calls == []


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
        watch.close()
    assert len(caplog.messages) == n_lines
    assert caplog.messages[-1] == f"fetch {max_steps}/{max_steps}"


def test_few_updates_and_always_the_last(monkeypatch):
    server = Server(monkeypatch, down=False)
    with disable_run_logger():
        watch = PrefectProgress("demo-1")
        for step in range(1, 1001):
            watch(Progress("grpo", step, 1000))
        watch.close()
    assert 0 < len(server.calls) < 20
    arguments, named = server.calls[-1]  # the first makes the artifact, the next change it
    assert named.get("progress", arguments[0]) == 100.0


def test_a_server_that_never_answers_holds_nobody(monkeypatch, caplog, run):
    answers = threading.Event()

    def held(*_, **__):
        assert answers.wait(60)
        return artifacts.UUID(int=1)

    for name in ("progress", "markdown", "table"):
        monkeypatch.setattr(artifacts, f"create_{name}_artifact", held)
    monkeypatch.setattr(artifacts, "_LIMIT_S", 0.1)
    monkeypatch.setattr(artifacts, "get_run_logger", lambda: logging.getLogger("watched"))
    watch = PrefectProgress("demo-1")
    for step in range(1, 4):
        watch(Progress("grpo", step, 3))
    watch.close(limit_s=0.1)
    show_gate(run)
    assert "does not answer" in caplog.text
    answers.set()


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
    assert "100 % of 4 held-out clips" in description


def markdown_of(server, key):
    """Text and description of the markdown artifact `key`."""
    (call,) = [arguments for arguments, _ in server.calls if arguments[1] == key]
    return call[0], call[2]


def test_the_evaluation_becomes_a_table_and_a_verdict(monkeypatch, run):
    server = Server(monkeypatch, down=False)
    evaluation = strict_json.read(run.metrics)
    evaluation["alarms"] = [{"name": "x", "message": "Nothing was learned."}]
    strict_json.write(run.metrics, evaluation)
    with disable_run_logger():
        show_evaluation(run)
    ((rows, key, description), _) = server.calls[0]
    assert (key, description) == ("results", "Held-out clips of demo-1")
    assert [row["policy"] for row in rows] == ["base", "warm-started", "trained"]
    assert rows[-1]["accuracy"] == f"{evaluation['passes']['trained']['accuracy']:.3f}"
    text, description = markdown_of(server, "verdict")
    assert description == "What demo-1 shows"
    assert text.startswith(f"**{evaluation['verdict']}**\n\n- Nothing was learned.\n\n| policy |")
    for name in ("trained", "TF-IDF line + context", "no prosody"):
        assert f"\n| {name} | " in text
    assert text.endswith("MLflow: <http://127.0.0.1:5001/#/experiments/7/runs/abc>")


def test_without_doubts_and_altered_prompts_nothing_stands_in_their_place(monkeypatch, run):
    server = Server(monkeypatch, down=False)
    evaluation = strict_json.read(run.metrics)
    strict_json.write(run.metrics, {**evaluation, "ablations": {}})
    with disable_run_logger():
        show_evaluation(run)
    text, _ = markdown_of(server, "verdict")
    assert "\n\n\n" not in text
    assert "full - this" not in text
    assert "\n- " not in text


def test_the_gate_gives_every_reason(monkeypatch, run):
    server = Server(monkeypatch, down=False)
    with disable_run_logger():
        show_gate(run)
    text, description = markdown_of(server, "gate")
    assert description == "Champion?"
    assert text == (
        "**not promoted; rules failed: no alarm**\n\n"
        "- passed: Better than the base by 0.1 \\| at n = 40.\n"
        "- **failed**: 1 alarm."
    )


def test_the_folds_become_tables(monkeypatch, run):
    server = Server(monkeypatch, down=False)
    evaluation = strict_json.read(run.metrics)
    figures = evaluation["passes"]
    path = strict_json.write(
        run.path / "folds.json",
        {
            "protocol": "official folds (speaker-dependent)", "n_clips": 40,
            "pooled": {"trained": figures["trained"]},
            "mean": {**figures, **evaluation["baselines"]},
            "folds": [{"fold": 3, "n": 8, "run_id": "cpu-1-fold-3", "policies": figures}],
            "comparisons": evaluation["comparisons"], "paper": None,
            "paper_left_out": "The paper's figures are of MUStARD; these clips are another corpus.",
        },
    )  # fmt: skip
    with disable_run_logger():
        show_folds(path)
    text, description = markdown_of(server, "folds")
    assert description == "official folds (speaker-dependent)"
    assert f"out-of-fold accuracy {figures['trained']['accuracy']:.3f} (" in text
    assert "cpu-1-fold-3" in text
    assert "these clips are another corpus" in text
    assert "| as published |" not in text
