"""The console script `subtext`, run as users run it where output matters, in-process elsewhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support.judged_run import LEAK_REPORT, judged_run
from typer.testing import CliRunner

from subtext import strict_json
from subtext.cli.main import app
from subtext.config import RunConfig
from subtext.errors import DataError, TrackingError
from subtext.profiles import resolve
from subtext.run_dir import RunDir
from subtext.summary import find_run, mlflow_link, next_commands, place_rows, render_summary

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "subtext.cli", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture
def finished(tmp_path):
    run = judged_run(tmp_path / "demo-1")
    strict_json.write(
        run.tracking,
        {
            "run_id": "abc",
            "uri": "sqlite:////x/mlflow.db",
            "model": {
                "name": "subtext",
                "version": 3,
                "alias": "challenger",
                "uri": "models:/subtext/3",
            },
        },
    )
    return run


def test_help_without_arguments():
    result = invoke()
    assert "prosody" in result.output
    assert "hub" in result.output


def test_config_show_prints_what_resolve_gives():
    result = invoke("config", "show", "--profile", "cpu", "--set", "grpo.max_steps=3")
    assert result.exit_code == 0
    expected = resolve("cpu", {"grpo": {"max_steps": 3}})
    assert RunConfig.model_validate(json.loads(result.output)) == expected


def test_config_fields_lists_every_field_of_a_section():
    result = invoke("config", "fields", "grpo")
    assert result.exit_code == 0
    for name in RunConfig.model_fields["grpo"].annotation.model_fields:
        assert f"grpo.{name}" in result.output
    assert "lora.r" not in result.output


def test_refusals_are_messages_not_tracebacks():
    result = run_script("config", "show", "--set", "grpo.max_stepz=3")
    assert result.returncode == 2
    assert "grpo.max_stepz = 3" in result.stderr
    assert "Did you mean grpo.max_steps?" in result.stderr
    assert "Traceback" not in result.stderr


def test_unknown_run_says_how_to_find_one():
    result = run_script("show", "no-such-run")
    assert result.returncode == 2
    assert "ls runs" in result.stderr


def test_show_prints_verdict_tables_places_and_next_commands(finished):
    evaluation = strict_json.read(finished.metrics)
    result = invoke("show", str(finished.path))
    assert result.exit_code == 0
    flat = " ".join(result.output.split())
    assert flat.startswith(evaluation["verdict"])
    figures = evaluation["passes"]["trained"]
    assert f"│ trained │ {figures['accuracy']:.3f} │" in flat
    against = evaluation["comparisons"][0]
    assert f"│ base │ {against['accuracy_against']:.3f} │ {against['difference']:+.3f} (" in flat
    assert f"{figures['n_with_prosody']} of {figures['n_eval_clips']} clips have prosody" in flat
    assert f"A true gain under {100 * evaluation['smallest_gain']:.0f} points" in flat
    for expected in ("no prosody", "report.html", "models:/subtext/3", "abc", "mlflow ui"):
        assert expected in flat


def test_show_leaves_out_what_was_not_judged(finished):
    evaluation = strict_json.read(finished.metrics)
    del evaluation["passes"]["warm"]
    strict_json.write(finished.metrics, {**evaluation, "ablations": {}, "smallest_gain": None})
    shown = invoke("show", str(finished.path)).output
    assert "warm-started" not in shown
    assert "Does the voice matter?" not in shown
    assert "go unseen" not in shown


def test_show_says_what_stands_against_the_figures_and_what_the_gate_said(finished):
    evaluation = strict_json.read(finished.metrics)
    evaluation["warnings"] = [{"name": "leak", "message": "[b]The speaker tells the label."}]
    strict_json.write(finished.metrics, evaluation)
    reason = {"rule": "no_warning", "passed": False, "text": "There is one."}
    strict_json.write(finished.gate, {"decision": "stay", "reasons": [reason]})
    shown = invoke("show", str(finished.path)).output
    assert "! [b]The speaker tells the label." in shown
    assert "not promoted; rules failed: no warning" in shown


def test_show_before_judging_names_the_missing_file(finished):
    finished.metrics.unlink()
    result = run_script("show", str(finished.path))
    assert result.returncode == 2
    assert "metrics.json" in result.stderr


@pytest.mark.parametrize(
    ("name", "content", "field"),
    [
        pytest.param("metrics.json", "{", "metrics.json", id="metrics-cut"),
        pytest.param("metrics.json", "\x00\udcff", "metrics.json", id="metrics-no-text"),
        pytest.param("metrics.json", "[]", "content", id="metrics-list"),
        pytest.param("metrics.json", "null", "content", id="metrics-null"),
        pytest.param("gate.json", "{", "gate.json", id="gate-cut"),
        pytest.param("gate.json", '{"decision": "stay"}', "reasons", id="gate-without-reasons"),
        pytest.param("tracking.json", "NaN", "tracking.json", id="tracking-no-json"),
        pytest.param("tracking.json", "[]", "content", id="tracking-list"),
        pytest.param("tracking.json", '{"run_id": "abc"}', "uri", id="tracking-without-uri"),
        pytest.param(
            "tracking.json", '{"run_id": "a", "uri": "b", "model": 3}', "model", id="version"
        ),
        pytest.param("leak_report.json", "{", "leak_report.json", id="leaks-cut"),
        pytest.param(
            "leak_report.json", json.dumps({**LEAK_REPORT, "split": 3}), "split", id="leaks"
        ),
        pytest.param("published.json", "[]", "content", id="published-list"),
        pytest.param(
            "published.json", '{"adapter": {"url": "http://x"}}', "adapter.revision", id="commit"
        ),
    ],
)  # fmt: skip
def test_show_names_a_broken_record(finished, name, content, field):
    (finished.path / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    result = invoke("show", str(finished.path))
    assert isinstance(result.exception, DataError)
    (problem,) = result.exception.problems
    assert problem.field == field
    assert name in str(problem)
    assert problem.remedy


def test_a_broken_record_is_a_message_not_a_traceback(finished):
    finished.metrics.write_text("{")
    result = run_script("show", str(finished.path))
    assert result.returncode == 2
    assert "metrics.json" in result.stderr
    assert "Traceback" not in result.stderr


def test_on_80_columns_the_summary_is_whole(finished):
    strict_json.write(finished.leak_report, LEAK_REPORT)
    console = Console(width=80)
    with console.capture() as capture:
        console.print(render_summary(finished))
    assert "…" not in capture.get()
    commands = [line for command in next_commands(finished) for line in command.splitlines()]
    long = [line.strip() for line in capture.get().splitlines() if len(line.rstrip()) > 80]
    assert set(long) <= {line.strip() for line in commands}


def test_piped_output_keeps_the_ends_of_commands(finished):
    deep = finished.path.parent / ("a-long-folder-name-" * 5)
    deep.mkdir()
    run = RunDir(finished.path.rename(deep / "demo-1"))
    result = run_script("show", str(run.path))
    assert result.returncode == 0, result.stderr
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    for command in next_commands(run):
        assert f"  {command.splitlines()[-1]}" in lines


def test_show_says_what_the_split_leaks(finished):
    assert "scene pairs" not in invoke("show", str(finished.path)).output
    strict_json.write(finished.leak_report, LEAK_REPORT)
    flat = " ".join(invoke("show", str(finished.path)).output.split())
    assert "Split official: 12 scene pairs across it" in flat
    assert "the speaker of 99 % and the show of 100 % of 138 held-out clips." in flat


def test_what_a_folder_is_called_is_shown_as_it_is(finished):
    run = RunDir(finished.path.rename(finished.path.with_name("[x]a[b]")))
    shown = invoke("show", str(run.path))
    assert shown.exit_code == 0, shown.output
    assert "Held-out clips, [x]a[b]" in shown.output


def test_summary_of_an_untracked_run(finished):
    finished.tracking.unlink()
    assert [what for what, _ in place_rows(finished)] == ["run directory", "report"]
    assert not any("mlflow" in command for command in next_commands(finished))
    assert mlflow_link(finished) == "not tracked"


@pytest.mark.parametrize(
    ("uri", "experiment", "link"),
    [
        pytest.param(
            "http://127.0.0.1:5001/", "7", "<http://127.0.0.1:5001/#/experiments/7/runs/abc>",
            id="server",
        ),
        pytest.param(
            "sqlite:////x/mlflow.db", "1",
            "run `abc`, shown by `mlflow ui --backend-store-uri sqlite:////x/mlflow.db`", id="file",
        ),
    ],
)  # fmt: skip
def test_where_the_mlflow_run_is_looked_at(finished, uri, experiment, link):
    record = strict_json.read(finished.tracking)
    strict_json.write(finished.tracking, {**record, "uri": uri, "experiment_id": experiment})
    assert mlflow_link(finished) == link


@pytest.fixture
def at_home(finished, monkeypatch):
    """As `make demo` ends: in the checkout, its store there, published to a Hub on this machine."""
    home = finished.path.parent
    monkeypatch.setenv("SUBTEXT_HOME", str(home))
    monkeypatch.chdir(home)
    record = {**strict_json.read(finished.tracking), "uri": f"sqlite:///{home}/mlflow.db"}
    strict_json.write(finished.tracking, record)
    landed = {"url": "http://127.0.0.1:4000/you/judge", "revision": "a" * 40}
    strict_json.write(finished.published, {"adapter": landed})
    return finished


def test_next_commands_after_the_demo(at_home, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "prefix", str(at_home.path.parent / ".venv"))
    script = Path(".venv/bin/activate")
    script.parent.mkdir(parents=True)
    script.touch()
    commands = next_commands(at_home)
    [python] = [command for command in commands if "python -c" in command]
    assert commands == [
        ". .venv/bin/activate",
        "subtext show demo-1",
        "# open demo-1/report.html in a browser",
        "mlflow ui --backend-store-uri sqlite:///mlflow.db",
        "subtext judge --line 'Oh, great. Another meeting.' --model models:/subtext/3",
        "subtext champion show",
        python,
        "subtext hub   # serves what was published, at a new address",
        "subtext config fields",
    ]
    assert "models:/subtext@challenger" in python
    assert all(len(line) < 78 for command in commands for line in command.splitlines())


def test_an_environment_that_is_active_is_not_activated(at_home, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/somewhere/{name}")
    assert next_commands(at_home)[0] == "subtext show demo-1"


def test_python_command_works_as_printed(at_home):
    """Copied from the screen, indented, into a shell: what Python then gets is a program."""
    console = Console(width=80)
    with console.capture() as capture:
        console.print(render_summary(at_home))
    lines = capture.get().splitlines()
    [start] = [index for index, line in enumerate(lines) if "python -c" in line]
    program = "\n".join(lines[start : start + 3])
    (at_home.path / "python").write_text('#!/bin/sh\nprintf "%s" "$MLFLOW_TRACKING_URI|$2"\n')
    (at_home.path / "python").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", program], env={"PATH": f"{at_home.path}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    uri, _, code = done.stdout.partition("|")
    assert uri == "sqlite:///mlflow.db"
    compile(code, "printed", "exec")
    assert "predict(judge.input_example)" in code


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        pytest.param("http://127.0.0.1:5001", "# open http://127.0.0.1:5001 in", id="server"),
        pytest.param(
            "sqlite:////x y/mlflow.db",
            "mlflow ui --backend-store-uri 'sqlite:////x y/mlflow.db'",
            id="file-elsewhere",
        ),
    ],
)
def test_how_to_look_into_the_store(finished, uri, shown):
    strict_json.write(finished.tracking, {**strict_json.read(finished.tracking), "uri": uri})
    commands = next_commands(finished)
    assert any(command.startswith(shown) for command in commands)
    assert any(f"MLFLOW_TRACKING_URI={uri} " in command.replace("'", "") for command in commands)


def test_a_run_that_lost_the_alias_is_looked_up_by_version(finished):
    record = strict_json.read(finished.tracking)
    record["model"]["alias"] = ""
    strict_json.write(finished.tracking, record)
    assert any("load_model('models:/subtext/3')" in text for text in next_commands(finished))


def test_a_real_hub_is_not_served_again(at_home):
    landed = {"url": "https://huggingface.co/you/judge", "revision": "a" * 40}
    strict_json.write(at_home.published, {"adapter": landed})
    assert not any(command.startswith("subtext hub") for command in next_commands(at_home))


def test_run_is_found_by_id_below_the_project_root(finished, monkeypatch):
    home = finished.path.parent
    (home / "runs").mkdir()
    finished.path.rename(home / "runs" / "demo-1")
    monkeypatch.setenv("SUBTEXT_HOME", str(home))
    assert find_run("demo-1").run_id == "demo-1"


def test_prosody_from_real_tracks(tmp_path):
    tracks = SHARED / "mustard" / "tracks_210.npz"
    if not tracks.exists():
        pytest.skip("../shared/mustard is not beside this checkout")
    output = tmp_path / "prosody.json"
    result = invoke("prosody", "from-tracks", str(tracks), "-o", str(output))
    assert result.exit_code == 0, result.output
    assert "210 prosody records" in result.output
    assert len(strict_json.read(output)["clips"]) == 210


def test_prosody_from_a_file_without_tracks_is_refused(tmp_path):
    path = tmp_path / "empty.npz"
    np.savez(path, **{"1_1/f0_hz": np.zeros(3, np.float32)})
    result = run_script("prosody", "from-tracks", str(path), "-o", str(tmp_path / "prosody.json"))
    assert result.returncode == 2, result.stderr
    assert "Tracks refused" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "prosody.json").exists()


@pytest.fixture(scope="module")
def tracks(tmp_path_factory):
    """Tracks of one clip, as `prosody from-tracks` reads them."""
    path = tmp_path_factory.mktemp("tracks") / "one.npz"
    n = 150
    arrays = {
        "f0_hz": np.full(n, 120.0), "intensity_db": np.full(n, 60.0), "hnr_db": np.full(n, 12.0),
        "start_s": np.zeros(3),
    }  # fmt: skip
    np.savez(path, **{f"1_1/{name}": array.astype(np.float32) for name, array in arrays.items()})
    details = {"duration_s": n / 100, "pitch_floor_hz": 75.0, "pitch_ceiling_hz": 500.0}
    strict_json.write(path.with_suffix(".json"), {"1_1": details})
    return path


@pytest.mark.parametrize("kind", ["folder", "below-a-file", "fifo", "read-only-folder"])
def test_an_output_that_cannot_be_written_is_refused(tracks, tmp_path, kind):
    output = tmp_path / "out"
    if kind == "folder":
        output.mkdir()
    elif kind == "below-a-file":
        output.write_text("kept")
        output = output / "prosody.json"
    elif kind == "fifo":
        os.mkfifo(output)
    elif os.geteuid() == 0:
        pytest.skip("root may write to any folder")
    else:
        output.mkdir(mode=0o500)
        output = output / "prosody.json"
    result = invoke("prosody", "from-tracks", str(tracks), "-o", str(output))
    assert isinstance(result.exception, DataError), result.output
    (problem,) = result.exception.problems
    assert (problem.field, problem.value) == ("-o", str(output))
    assert problem.remedy


def test_a_folder_of_clips_counts_from_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT / "data")
    picture = tmp_path / "clip.png"
    clip_id = next(iter(strict_json.read(ROOT / "data" / "demo" / "sarcasm_data.json")))
    for arguments in (
        ["data", "validate", "demo"],
        ["prosody", "plot", clip_id, "--root", "demo", "-o", str(picture)],
    ):
        result = invoke(*arguments)
        assert result.exit_code == 0, result.output
    assert picture.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["champion", "show"], id="champion-show"),
        pytest.param(["champion", "move", "1", "--why", "x"], id="champion-move"),
        pytest.param(["champion", "undo"], id="champion-undo"),
        pytest.param(["judge", "--line", "Great."], id="judge"),
    ],
)
def test_the_registry_is_not_made_by_looking_into_it(tmp_path, monkeypatch, arguments):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    result = invoke(*arguments)
    assert isinstance(result.exception, TrackingError)
    assert "no store is there yet" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        pytest.param(["--line", " "], "utterance", " ", id="blank"),
        pytest.param(["--line", "Hm.", "--audio", "no.wav"], "file", "no.wav", id="no-sound"),
    ],
)
def test_a_line_that_cannot_be_judged_is_refused_before_a_model_is_loaded(
    monkeypatch, arguments, field, value
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:///nowhere")
    result = invoke("judge", *arguments)
    assert isinstance(result.exception, DataError)
    (problem,) = result.exception.problems
    assert (problem.field, problem.value) == (field, value)


def test_a_user_without_a_name_is_asked_for_one():
    names = ("LOGNAME", "USER", "LNAME", "USERNAME")
    program = "import os; from subtext.cli.main import main; os.getuid = lambda: 2**31 - 3; main()"
    result = subprocess.run(
        [sys.executable, "-c", program, "champion", "undo"],
        cwd=ROOT, env={key: value for key, value in os.environ.items() if key not in names},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 2
    assert "--who NAME" in result.stderr
    assert "Traceback" not in result.stderr
