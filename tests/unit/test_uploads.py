"""The model card as a step of a run, and the error that names a run with failed uploads."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from support.adapter_record import adapter_record
from support.judged_run import judged_run

from subtext import strict_json
from subtext.errors import DataError, SubtextError
from subtext.publishing.uploads import UploadsError, check_finished, write_card
from subtext.run_dir import RunDir, load_config

BASE = {"source": "path", "name": "tiny-policy", "revision": "", "sha256": "c" * 64}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A judged run as training leaves it: with the draft of a card that TRL writes."""
    run = judged_run(tmp_path / "demo-7")
    strict_json.write(run.adapter / "subtext.json", adapter_record(base=BASE))
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


@pytest.mark.parametrize(
    ("content", "field"),
    [
        pytest.param(None, "content", id="missing"),
        pytest.param("{", "config.json", id="cut"),
        pytest.param("[]", "content", id="list"),
        pytest.param('{"profile": "demo"}', "config", id="no configuration"),
        pytest.param(
            '{"config": {"grpo": {"max_steps": "x"}}}', "config.grpo.max_steps", id="value"
        ),
        pytest.param('{"config": {"older": {}}}', "config.older", id="of another version"),
    ],
)
def test_a_broken_configuration_is_named(run: RunDir, content: str | None, field: str) -> None:
    run.config.unlink()
    if content is not None:
        run.config.write_text(content)
    with pytest.raises(DataError) as caught:
        load_config(run)
    (problem,) = caught.value.problems
    assert problem.field == field
    assert "config.json" in str(problem)
    assert "Copy it back" in problem.remedy


def test_a_configuration_that_is_a_folder_is_named(run: RunDir) -> None:
    run.config.unlink()
    run.config.mkdir()
    with pytest.raises(DataError, match="Is a directory"):
        load_config(run)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        pytest.param("metrics.json", None, "--protocol run", id="not judged"),
        pytest.param("metrics.json", "[", "Copy it back", id="metrics cut"),
        pytest.param("adapter/subtext.json", None, "subtext.json", id="not trained"),
        pytest.param("tracking.json", '{"uri": "x"}', "run_id", id="no run id"),
        pytest.param("published.json", '{"adapter": 3}', "what landed is not sent", id="landed"),
        pytest.param("config.json", "{}", "Copy it back", id="no configuration"),
    ],
)
def test_publishing_starts_only_from_a_whole_run(
    run: RunDir, name: str, content: str | None, said: str
) -> None:
    check_finished(run)  # MLflow need not know of it yet
    strict_json.write(run.tracking, {"run_id": "abc", "uri": "sqlite:////x/mlflow.db"})
    check_finished(run)
    path = run.path / name
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content)
    with pytest.raises(SubtextError, match=said) as caught:
        check_finished(run)
    assert name in str(caught.value)


def test_the_error_of_failed_uploads_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(UploadsError("1 of 4 failed", "/srv/runs/demo-7")))
    assert (str(error), error.run_path) == ("1 of 4 failed", "/srv/runs/demo-7")
    assert not error.retryable
