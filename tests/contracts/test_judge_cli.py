"""`subtext judge` and `subtext champion`, run as users run them on a registered version."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest
from support.registered_run import registered_run

from subtext import strict_json, tracking
from subtext.data.scenarios import load_scenarios
from subtext.judge import Judge
from subtext.prosody.measure import measure_clip
from subtext.run_dir import RunDir

SOUND = next((Path(__file__).resolve().parents[2] / "data" / "demo" / "audio").glob("*.flac"))
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def run(home: Path) -> RunDir:
    return registered_run(home, "first", seed=1)


def subtext(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [sys.executable, "-m", "subtext.cli", *arguments],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "100", **changes},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "Traceback" not in result.stderr
    return result


def test_judges_as_the_adapter_does_and_says_what_it_read(run: RunDir) -> None:
    clip = load_scenarios("corpus")[strict_json.read(run.split)["judged"][0]]
    context = zip(clip["context_speakers"], clip["context"], strict=True)
    options = [f"--context={speaker}: {text}" for speaker, text in context]
    done = subtext(
        "judge", "--line", clip["utterance"], *options, "--speaker", clip["speaker"],
        "--audio", str(SOUND), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "has no champion yet; its challenger judges" in done.stderr
    answer = json.loads(done.stdout)
    heard = {**clip, "prosody": measure_clip(SOUND, clip["utterance"])}
    judge = Judge.load(run.adapter)
    assert answer == {
        "model": "models:/subtext@challenger",
        **judge.judge([heard])[0],
        "prosody": judge.delivery(heard),
    }
    assert "pitch variation:" in answer["prosody"]
    assert "contour:" in answer["prosody"]


def test_table_says_a_malformed_answer_plainly(run: RunDir) -> None:
    store = mlflow.MlflowClient(tracking.tracking_uri())
    store.set_registered_model_alias("subtext", "champion", "1")
    try:
        # No form after 40 tokens of nothing it knows.
        done = subtext("judge", "--line", "[x] Zyzzyva quux? " * 30)
    finally:
        store.delete_registered_model_alias("subtext", "champion")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "models:/subtext@champion" in done.stdout
    assert "[x] Zyzzyva" in done.stdout
    assert "give --audio, and the delivery counts" in done.stdout
    [label] = [line for line in done.stdout.splitlines() if line.startswith("label")]
    assert "malformed" in label


@pytest.mark.parametrize(
    ("arguments", "changes", "said"),
    [
        pytest.param(["--line", " "], {}, "Give the line to judge", id="blank"),
        pytest.param(["--line", "Hm.", "--audio", "none.wav"], {}, "none.wav", id="no-sound"),
        pytest.param(
            ["--line", "Hm.", "--model", "models:/subtext@best"], {}, "challenger (version 1)",
            id="no-alias",
        ),
        pytest.param(["--line", "Hm.", "--model", "none"], {}, "models:/subtext@", id="no-model"),
        pytest.param(
            ["--line", "Hm.", "--model", "~nobody-here/x"], {}, "is no registered version",
            id="no-such-user",
        ),
        pytest.param(["--line", "Hm. " * 4000], {}, "Shorten its line", id="too-long"),
        pytest.param(
            ["--line", "Hm."], {"SUBTEXT_BASE_MODEL": ""}, "Set SUBTEXT_BASE_MODEL", id="no-base"
        ),
        pytest.param(
            ["--line", "Hm."], {"MLFLOW_TRACKING_URI": "sqlite:////tmp/none.db"},
            "no store is there yet", id="no-store",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_a_message(
    run: RunDir, arguments: list[str], changes: dict[str, str], said: str
) -> None:
    done = subtext("judge", *arguments, **changes)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_a_damaged_adapter_is_a_message(run: RunDir, tmp_path: Path) -> None:
    adapter = Path(shutil.copytree(run.adapter, tmp_path / "damaged"))
    weights = adapter / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    done = subtext("judge", "--line", "Hm.", "--model", str(adapter))
    assert done.returncode == 2
    assert "adapter_model.safetensors" in done.stderr
    assert "Copy it back" in done.stderr


def test_champion_is_shown_moved_and_moved_back(run: RunDir) -> None:
    shown = subtext("champion", "show")
    assert "none yet" in shown.stdout
    assert "the gate has not judged it" in shown.stdout
    assert "--model models:/subtext@challenger" in shown.stdout
    assert "champion move" not in shown.stdout  # what was not promoted is not recommended
    refused = subtext("champion", "move", "1", "--why", "why not")
    assert refused.returncode == 2
    assert "repeat with --force" in refused.stderr
    moved = subtext("champion", "move", "1", "--why", "[x] why", "--who", "Ada", "--force")
    assert moved.returncode == 0, moved.stderr
    assert "Champion of subtext: none -> version 1." in moved.stdout
    assert "--force is on record" in moved.stdout
    shown = subtext("champion", "show")
    assert "[x] why (forced)" in shown.stdout
    assert "Ada" in shown.stdout
    assert "models:/subtext@champion" in shown.stdout
    undone = subtext("champion", "undo", "--why", "enough")
    assert "Champion of subtext: version 1 -> none." in undone.stdout
    assert subtext("champion", "show", "--name", "other").returncode == 2
