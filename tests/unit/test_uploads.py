"""The model card as a step of a run, and the error that names a run with failed uploads."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from subtext import strict_json
from subtext.errors import DataError
from subtext.profiles import resolve
from subtext.publishing.uploads import UploadsError, write_card
from subtext.run_dir import RunDir

BASE = {"source": "path", "name": "tiny-policy", "revision": "", "sha256": "c" * 64}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A judged run as training leaves it: with the draft of a card that TRL writes."""
    run = RunDir(tmp_path / "demo-7").create()
    config = resolve("demo").model_dump(mode="json")
    strict_json.write(run.config, {"profile": "demo", "config": config})
    split = {"train": ["a"], "held_out": ["b"], "judged": ["b"], "data_digest": "d" * 64}
    strict_json.write(run.split, {**split, "corpus": "demo"})
    record = {"schema": "subtext-adapter/1", "base": BASE}
    strict_json.write(run.adapter / "subtext.json", record)
    strict_json.write(run.metrics, {"passes": {}, "training": {}})
    run.model_card.write_text("# Model Card for runs/demo-7")
    return run


def test_the_card_replaces_the_draft(run: RunDir) -> None:
    text = write_card(run).read_text("utf-8")
    assert text.startswith("---\n")
    assert "# Sarcasm judge, run demo-7" in text


@pytest.mark.parametrize(
    ("missing", "said"),
    [("metrics.json", "metrics.json"), ("adapter/subtext.json", "subtext.json")],
    ids=["not judged", "not trained"],
)
def test_without_results_or_adapter_there_is_no_card(run: RunDir, missing: str, said: str) -> None:
    (run.path / missing).unlink()
    with pytest.raises(DataError, match=said):
        write_card(run)
    assert run.model_card.read_text("utf-8").startswith("# Model Card for")


def test_the_error_of_failed_uploads_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(UploadsError("1 of 4 failed", "/srv/runs/demo-7")))
    assert (str(error), error.run_path) == ("1 of 4 failed", "/srv/runs/demo-7")
    assert not error.retryable
