"""A run judged with a model that another run trained: what it may have seen, what is damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from rich.console import Console
from safetensors.torch import load_file, save_file
from support.registered_run import add_random_adapter, prepared_run, registered_run
from typer.testing import CliRunner

from subtext import strict_json, tracking
from subtext.cli.main import app
from subtext.config import GateConfig
from subtext.data.scenarios import load_scenarios
from subtext.data.scenes import scene_of
from subtext.errors import DataError, EvaluationError
from subtext.evaluation.assess import assess
from subtext.evaluation.compare_runs import compare_runs
from subtext.evaluation.gate import decide
from subtext.evaluation.leaks import leak_warnings
from subtext.judge import Judge
from subtext.run_dir import RunDir
from subtext.summary import place_rows, render_summary

pytestmark = pytest.mark.slow

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@pytest.fixture(scope="module")
def trained(home: Path) -> RunDir:
    """The run whose adapter judges, on a corpus in which every fourth clip is of one scene."""
    path = home / "corpus" / "sarcasm_data.json"
    clips = json.loads(path.read_text())
    for clip_id in list(clips)[::4]:
        clips[clip_id]["context"][0] = "Nobody told me about the second boiler."
    path.write_text(json.dumps(clips))
    return registered_run(home, "trained", seed=1, split="random")


@pytest.fixture(scope="module")
def loose(trained: RunDir, home: Path) -> Path:
    """The same adapter, copied out of its run."""
    return Path(shutil.copytree(trained.adapter, home / "copies" / "loose"))


@pytest.fixture(scope="module")
def by_run(home: Path, trained: RunDir) -> RunDir:
    return judged_by(str(trained.path), home, "by-run")


@pytest.fixture(scope="module")
def by_loose(home: Path, loose: Path) -> RunDir:
    return judged_by(str(loose), home, "by-loose")


def judged_by(model: str, home: Path, run_id: str) -> RunDir:
    run = prepared_run(home, run_id, split="random", split_seed=1)
    tracking.judge_model(run, model)
    assess(run)
    return run


def warnings_of(run: RunDir) -> list[str]:
    return [item["name"] for item in strict_json.read(run.metrics)["warnings"]]


def shown(run: RunDir) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(render_summary(run))
    return " ".join(capture.get().split())


class TestWhatItHasSeen:
    def test_clips_it_was_trained_on_and_their_scenes_are_left_out(
        self, by_run: RunDir, trained: RunDir
    ) -> None:
        scenes = scene_of(load_scenarios("corpus"))
        judged = strict_json.read(by_run.split)["judged"]
        train = set(strict_json.read(trained.split)["train"])
        seen = {scenes[clip_id] for clip_id in train}
        kept = [clip_id for clip_id in judged if scenes[clip_id] not in seen]
        same_scene = [
            clip_id for clip_id in judged if clip_id not in train and scenes[clip_id] in seen
        ]
        assert kept
        assert same_scene
        assert train & set(judged)
        results = strict_json.read(by_run.held_out_eval)["results"]
        assert [record["clip_id"] for record in results] == kept
        assert strict_json.read(by_run.judged_model) == {
            "model": "trained", "n_judged": len(kept), "n_same_scene": len(same_scene),
            "n_trained_on": len(train & set(judged)),
        }  # fmt: skip
        place = dict(place_rows(by_run))["judged"]
        assert place.startswith("trained; left out: ")
        assert f"{len(same_scene)} of a scene with one" in place

    def test_leaks_of_a_split_that_trained_nothing_are_not_its_own(self, by_run: RunDir) -> None:
        assert list(leak_warnings(strict_json.read(by_run.leak_report)))
        assert not {"leak", "unknown_training"} & set(warnings_of(by_run))
        assert "scene pairs across" not in shown(by_run)

    def test_where_nothing_is_left_it_says_so(self, home: Path, trained: RunDir) -> None:
        run = prepared_run(home, "nothing-left", split="random")
        split = strict_json.read(trained.split)
        strict_json.write(
            run.split, {**split, "train": split["held_out"], "held_out": split["train"],
                        "judged": split["train"]},
        )  # fmt: skip
        with pytest.raises(EvaluationError, match="or on others of their scenes"):
            tracking.judge_model(run, "trained")

    def test_unknown_training_is_said_wherever_figures_are(
        self, by_loose: RunDir, loose: Path
    ) -> None:
        assert strict_json.read(by_loose.judged_model) == {
            "model": "loose", "n_judged": len(strict_json.read(by_loose.split)["judged"]),
            "n_trained_on": None, "n_same_scene": None,
        }  # fmt: skip
        assert "unknown_training" in warnings_of(by_loose)
        said = shown(by_loose)
        assert "loose; which clips it was trained on is not known" in said
        assert "! Which clips loose was trained on is not known" in said
        evaluation = strict_json.read(by_loose.metrics)
        assert "stand" in evaluation["verdict"]
        assert "Which clips loose was trained on" in by_loose.report.read_text()
        [rule] = [
            reason
            for reason in decide(evaluation, GateConfig())["reasons"]
            if reason["rule"] == "no_warning"
        ]
        assert not rule["passed"]
        assert "is not known" in rule["text"]

    def test_compare_says_it_too(self, by_loose: RunDir, by_run: RunDir) -> None:
        assert compare_runs(by_run, by_loose)["unknown_training"] == ["by-loose"]
        assert compare_runs(by_run, by_run)["unknown_training"] == []
        result = CliRunner().invoke(app, ["compare", str(by_run.path), str(by_loose.path)])
        assert result.exit_code == 0, result.output
        flat = " ".join(result.output.split())
        assert "! Which clips the model of by-loose was trained on is not known" in flat
        assert "the model of by-run" not in flat

    def test_no_folder_of_this_machine_is_on_record(
        self, home: Path, by_run: RunDir, by_loose: RunDir
    ) -> None:
        for run in (by_run, by_loose):
            assert str(home) not in run.judged_model.read_text()

    def test_an_alias_is_recorded_as_the_version_it_named(
        self, home: Path, trained: RunDir
    ) -> None:
        run = judged_by("models:/subtext@challenger", home, "by-alias")
        assert strict_json.read(run.judged_model)["model"] == "models:/subtext/1"


def set_in(path: Path, **values: Any) -> None:
    strict_json.write(path, strict_json.read(path) | values)


def without_a_layer(path: Path) -> None:
    weights = load_file(path)
    weights.pop(min(weights))
    save_file(weights, path)


DAMAGES = {
    "cut weights": (WEIGHTS, lambda path: path.write_bytes(path.read_bytes()[:-100])),
    "garbage weights": (WEIGHTS, lambda path: path.write_bytes(b"\xff" * 500)),
    "empty weights": (WEIGHTS, lambda path: path.write_bytes(b"")),
    "no weights": (WEIGHTS, Path.unlink),
    "a layer too few": (WEIGHTS, without_a_layer),
    "another rank": (WEIGHTS, lambda path: set_in(path.with_name(CONFIG), r=2)),
    "layers by no name": (
        WEIGHTS, lambda path: set_in(path.with_name(CONFIG), target_modules=["no_such_layer"]),
    ),
    "no config": (CONFIG, Path.unlink),
    "broken config": (CONFIG, lambda path: path.write_text('{"r": ')),
    "config is a list": (CONFIG, lambda path: path.write_text("[]")),
    "config of no kind": (CONFIG, lambda path: set_in(path, peft_type="NONE")),
    "config is a folder": (CONFIG, lambda path: (path.unlink(), path.mkdir())),
}  # fmt: skip


class TestDamage:
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_a_damaged_adapter_is_named_with_its_file(
        self, loose: Path, tmp_path: Path, damage: str
    ) -> None:
        name, break_it = DAMAGES[damage]
        adapter = Path(shutil.copytree(loose, tmp_path / "damaged"))
        break_it(adapter / name)
        with pytest.raises(DataError) as caught:
            Judge.load(adapter)
        [problem] = caught.value.problems
        assert (problem.where, problem.field) == (str(adapter), name)
        assert "Copy it back" in problem.remedy

    @pytest.mark.parametrize("model", ["~no-such-user/x", "none", "x" * 200])
    def test_what_is_no_model_is_a_message(self, home: Path, model: str) -> None:
        with pytest.raises(DataError, match="is no registered version, run or adapter"):
            tracking.load_judge(model)


class TestRoom:
    def test_a_clip_longer_than_the_model_reads_is_named(self, loose: Path) -> None:
        judge = Judge.load(loose)
        limit = judge.model.config.max_position_embeddings
        clips = [
            {"utterance": "Great.", "clip_id": "1_1"},
            {"utterance": "so " * limit, "clip_id": "1_2"},
            {"utterance": "so " * limit},
        ]
        with pytest.raises(DataError) as caught:
            next(judge.answers(clips))
        assert [problem.where for problem in caught.value.problems] == ["clip 1_2", "clip 2"]
        assert all(problem.value > limit for problem in caught.value.problems)
        assert str(limit) in str(caught.value)

    def test_what_just_fits_is_judged(self, loose: Path) -> None:
        judge = Judge.load(loose)
        clip = {"utterance": "Great."}
        with pytest.raises(DataError) as caught:
            judge.model.config.max_position_embeddings = judge.max_new_tokens
            judge.judge([clip])
        n_tokens = caught.value.problems[0].value
        judge.model.config.max_position_embeddings = n_tokens + judge.max_new_tokens
        assert len(judge.judge([clip])) == 1
        judge.model.config.max_position_embeddings -= 1
        with pytest.raises(DataError):
            judge.judge([clip])


class TestChampion:
    @pytest.fixture
    def store(self, trained: RunDir) -> Iterator[mlflow.MlflowClient]:
        store = mlflow.MlflowClient(tracking.tracking_uri())
        yield store
        store.delete_registered_model_alias("subtext", "champion")

    def test_a_damaged_champion_is_a_reason_not_a_stop(
        self, home: Path, trained: RunDir, store: mlflow.MlflowClient
    ) -> None:
        store.set_registered_model_alias("subtext", "champion", "1")
        source = store.get_model_version("subtext", "1").source
        weights = Path(source.removeprefix("file://")) / "artifacts" / "adapter" / WEIGHTS
        kept = weights.read_bytes()
        run = prepared_run(home, "beside-damage", split="random", split_seed=1)
        weights.write_bytes(kept[:-100])
        try:
            assert tracking.judge_champion(run) is None
        finally:
            weights.write_bytes(kept)
        assert WEIGHTS in strict_json.read(run.champion)["reason"]

    def test_a_champion_without_a_run_is_not_taken_for_the_own_version(
        self, home: Path, trained: RunDir, store: mlflow.MlflowClient
    ) -> None:
        source = store.get_model_version("subtext", "1").source
        version = store.create_model_version("subtext", source)
        assert not version.run_id
        store.set_registered_model_alias("subtext", "champion", version.version)
        run = prepared_run(home, "untracked", split="random", split_seed=1)
        add_random_adapter(run, seed=3)
        assert tracking.judge_champion(run) is None
        found = strict_json.read(run.champion)
        assert found["version"] == int(version.version)
        assert "names no MLflow run" in found["reason"]
