"""The first step of a run: what it writes, whom it holds out, and what it refuses unwritten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from support.corpus import write_corpus

from subtext import strict_json
from subtext.config import RunConfig
from subtext.data.scenarios import data_digest, load_run_scenarios, load_scenarios
from subtext.data.splits import judging_order
from subtext.errors import ConfigError, DataError, MachineError
from subtext.evaluation.leaks import leak_report
from subtext.prepare import (
    check_run,
    make_split,
    prepare_run,
    run_directory,
)
from subtext.profiles import resolve
from subtext.prosody.reference import Reference
from subtext.run_dir import RunDir, load_config

CPU = {"model": {"device": "cpu", "quantization": "none"}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project root that holds a corpus, so that nothing lands in the checkout."""
    write_corpus(tmp_path / "corpus", n_clips=40)
    monkeypatch.setenv("SUBTEXT_HOME", str(tmp_path))
    return tmp_path


def overrides(**sections: dict[str, Any]) -> dict[str, Any]:
    return {**CPU, "data": {"root": "corpus", "eval_ratio": 0.33}, **sections}


def _unjudged(split: dict[str, Any]) -> int:
    held_out = split["held_out"]
    return next(i for i, clip_id in enumerate(held_out) if clip_id not in split["judged"])


def config(**sections: dict[str, Any]) -> RunConfig:
    return resolve("demo", overrides(**sections))


class TestSplit:
    def test_halves_cover_all_clips_once(self, home: Path) -> None:
        scenarios = load_scenarios(home / "corpus")
        data = {"root": "corpus", "split": "random", "eval_ratio": 0.33}
        split = make_split(scenarios, config(data=data))
        assert sorted([*split["train"], *split["held_out"]]) == sorted(scenarios)
        assert len(split["held_out"]) == int(0.33 * 40)
        assert split["data_digest"] == data_digest(scenarios)
        assert (split["kind"], split["seed"], split["eval_ratio"]) == ("random", 42, 0.33)
        assert (split["fold"], split["test_shows"]) == (None, None)

    @pytest.mark.parametrize(
        ("profile", "data", "recorded"),
        [
            pytest.param(
                "demo", {"split": "speaker", "split_seed": 3},
                {"kind": "speaker", "seed": 3, "eval_ratio": 0.33}, id="speaker",
            ),
            pytest.param(
                "cpu", {"split": "show", "test_shows": ["HARBOUR"]},
                {"kind": "show", "seed": None, "eval_ratio": None, "test_shows": ["HARBOUR"]},
                id="show",
            ),
            pytest.param(
                "cpu", {"split": "official", "fold": 2},
                {"kind": "official", "seed": None, "eval_ratio": None, "fold": 2}, id="official",
            ),
        ],
    )  # fmt: skip
    def test_the_record_says_how_the_clips_were_divided(
        self, home: Path, profile: str, data: dict[str, Any], recorded: dict[str, Any]
    ) -> None:
        scenarios = load_scenarios(home / "corpus")
        ids = list(scenarios)
        folds = [
            {"train": [i for i in ids if i not in ids[k::5]], "test": ids[k::5]} for k in range(5)
        ]
        strict_json.write(home / "corpus" / "official_folds.json", folds)
        changed = resolve(profile, {**CPU, "data": {"root": "corpus", **data}})
        split = make_split(scenarios, changed)
        assert {key: split[key] for key in recorded} == recorded
        everyone = sorted([*split["train"], *split["held_out"]])
        assert set(everyone) <= scenarios.keys()
        assert len(set(everyone)) == len(everyone)

    def test_a_held_out_half_with_one_label_is_refused(self, home: Path) -> None:
        path = home / "corpus" / "sarcasm_data.json"
        clips = strict_json.read(path)
        for clip in clips.values():
            clip["sarcasm"] = clip["sarcasm"] or clip["show"] == "HARBOUR"
        strict_json.write(path, clips)
        data = {"root": "corpus", "split": "show", "test_shows": ["HARBOUR"]}
        with pytest.raises(DataError, match=r"held-out clips: sarcasm = True.*data\.test_shows"):
            check_run("cpu", {**CPU, "data": data})

    def test_prosody_filters_after_the_split(self, home: Path) -> None:
        scenarios = load_scenarios(home / "corpus")
        every = make_split(scenarios, config())
        data = {"root": "corpus", "eval_ratio": 0.33, "require_prosody": True}
        measured = make_split(scenarios, config(data=data))
        with_prosody = {clip_id for clip_id, clip in scenarios.items() if clip["prosody"]}
        assert 0 < len(with_prosody) < len(scenarios)
        for half in ("train", "held_out"):
            assert measured[half] == [i for i in every[half] if i in with_prosody]
            assert len(measured[half]) < len(every[half])
        assert measured["data_digest"] == every["data_digest"]

    @pytest.mark.parametrize("order", ["seed", "stratified"])
    @pytest.mark.parametrize("n_eval_clips", [1, 5, 13, 80])
    def test_judged_are_the_first_of_the_order(
        self, home: Path, order: Literal["seed", "stratified"], n_eval_clips: int
    ) -> None:
        scenarios = load_scenarios(home / "corpus")
        evaluation = {"clip_order": order, "n_eval_clips": n_eval_clips}
        split = make_split(scenarios, config(evaluation=evaluation))
        ordered = judging_order(split["held_out"], scenarios, order)
        assert split["judged"] == ordered[:n_eval_clips]
        assert len(split["judged"]) == min(n_eval_clips, len(split["held_out"]))

    def test_no_clip_with_prosody_is_refused(self, tmp_path: Path) -> None:
        scenarios = load_scenarios(write_corpus(tmp_path, n_clips=12, with_prosody=False))
        data = {"eval_ratio": 0.33, "require_prosody": True}
        with pytest.raises(DataError, match=r"data\.require_prosody = True.*prosody\.json"):
            make_split(scenarios, config(data=data))


class TestPrepareRun:
    def test_writes_config_and_split(self, home: Path) -> None:
        run = prepare_run("demo", overrides(grpo={"max_steps": 3}), default_run_id="first")
        assert run.path == home / "runs" / "first"
        assert load_config(run) == config(grpo={"max_steps": 3})
        assert run.read(run.config)["profile"] == "demo"
        _, split = check_run("demo", overrides(grpo={"max_steps": 3}))
        assert run.read(run.split) == split
        report = run.read(run.leak_report)
        assert report == leak_report(load_scenarios(home / "corpus"), split)
        assert report["data_digest"] == split["data_digest"]
        names = [".lock", "config.json", "leak_report.json", "prosody_reference.json", "split.json"]
        assert sorted(path.name for path in run.path.iterdir()) == names

    @pytest.mark.parametrize(
        ("training", "below"),
        [
            pytest.param({}, "runs/default", id="defaults"),
            pytest.param({"run_id": "mine"}, "runs/mine", id="run-id"),
            pytest.param({"runs_dir": "my runs/all"}, "my runs/all/default", id="relative"),
        ],
    )
    def test_directory_is_below_the_project(
        self, home: Path, training: dict[str, str], below: str
    ) -> None:
        assert run_directory(config(training=training), "default").path == home / below

    def test_absolute_runs_dir_is_kept(self, home: Path, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        run = run_directory(config(training={"runs_dir": str(elsewhere)}), "default")
        assert run.path == elsewhere / "default"

    def test_same_configuration_enters_again(self, home: Path) -> None:
        first = prepare_run("demo", overrides(), default_run_id="again")
        before = (first.config.read_bytes(), first.split.read_bytes())
        second = prepare_run("demo", overrides(), default_run_id="again")
        assert (second.config.read_bytes(), second.split.read_bytes()) == before

    @pytest.mark.parametrize("check", ["prepare", "check"])
    @pytest.mark.parametrize(
        ("profile", "sections", "fields"),
        [
            pytest.param("demo", {"grpo": {"max_steps": 9}}, {"grpo.max_steps"}, id="one-knob"),
            pytest.param(
                "demo", {"lora": {"target_modules": ["q_proj"]}, "evaluation": {"batch_size": 3}},
                {"lora.target_modules", "evaluation.batch_size"}, id="two-knobs",
            ),
            pytest.param("cpu", {}, {"model.source", "grpo.max_steps"}, id="other-profile"),
        ],
    )  # fmt: skip
    def test_another_run_of_the_same_name_is_refused_field_by_field(
        self, home: Path, check: str, profile: str, sections: dict[str, Any], fields: set[str]
    ) -> None:
        named = {"training": {"run_id": "taken"}}
        run = prepare_run("demo", overrides(**named), default_run_id="flow-1")
        before = (run.config.read_bytes(), run.split.read_bytes())
        with pytest.raises(ConfigError) as caught:
            if check == "check":
                check_run(profile, overrides(**named, **sections))
            else:
                prepare_run(profile, overrides(**named, **sections), default_run_id="flow-2")
        found = {problem.field: problem for problem in caught.value.problems}
        assert fields == found.keys() if profile == "demo" else fields < found.keys()
        recorded = strict_json.read(run.config)["config"]
        wanted = resolve(profile, overrides(**named, **sections)).model_dump(mode="json")
        for field in fields:
            section, _, name = field.partition(".")
            assert found[field].where == "run taken"
            assert found[field].value == wanted[section][name]
            assert found[field].problem == f"the run was made with {recorded[section][name]!r}"
            remedy = f"Set {field} back, or choose another training.run_id."
            assert found[field].remedy == remedy
        assert (run.config.read_bytes(), run.split.read_bytes()) == before

    @pytest.mark.parametrize(
        "sections",
        [
            pytest.param({"training": {"price_per_hour": 2.5}}, id="price"),
            pytest.param({"publish": {"adapter_repo": "you/judge", "private": True}}, id="publish"),
            pytest.param({"data": {"root": "moved"}}, id="data-moved"),
            pytest.param({"training": {"runs_dir": "./runs"}}, id="runs-dir"),
        ],
    )
    def test_another_start_may_go_on_with_a_run_and_move_what_may_move(
        self, home: Path, sections: dict[str, Any]
    ) -> None:
        run = prepare_run("demo", overrides(), default_run_id="demo-1")
        split = strict_json.read(run.split)
        if "data" in sections:
            (home / "corpus").rename(home / "moved")
        merged = {name: {**overrides().get(name, {}), **s} for name, s in sections.items()}
        merged["training"] = {**merged.get("training", {}), "run_id": "demo-1"}
        check_run("demo", overrides(**merged))
        assert prepare_run("demo", overrides(**merged), default_run_id="demo-2").path == run.path
        section, field = next((s, f) for s, fields in sections.items() for f in fields)
        now = load_config(run).model_dump(mode="json")
        assert now[section][field] == sections[section][field]
        assert now["training"]["run_id"] == "demo-1"
        again = strict_json.read(run.split)
        assert {**again, "corpus": None} == {**split, "corpus": None}

    def test_a_run_that_trains_and_one_that_judges_are_not_the_same(self, home: Path) -> None:
        def start(model: str | None) -> None:
            prepare_run("demo", overrides(), default_run_id="judged", judged_model=model)

        start("models:/subtext@champion")
        start("models:/subtext@champion")
        leaks = RunDir(home / "runs" / "judged").leak_report
        assert not leaks.exists(), "this split says nothing of a model trained on another"
        for model in (None, "models:/subtext/3"):
            with pytest.raises(ConfigError, match=r"judged_model.*models:/subtext@champion"):
                start(model)

    def test_knobs_that_are_new_since_have_their_default(self, home: Path) -> None:
        run = prepare_run("demo", overrides(), default_run_id="old")
        content = strict_json.read(run.config)
        del content["config"]["grpo"]["stop_on_alarm"]
        del content["judged_model"]
        strict_json.write(run.config, {**content, "owner": "flow-1"})
        assert prepare_run("demo", overrides(), default_run_id="old") == run

    def test_an_edited_split_is_not_overwritten(self, home: Path) -> None:
        run = prepare_run("demo", overrides(), default_run_id="edited")
        split = strict_json.read(run.split)
        split["train"].append(split["held_out"].pop(0))
        split["judged"] = split["held_out"]
        strict_json.write(run.split, split)
        with pytest.raises(DataError, match=r"are not where data\.split=scene puts them"):
            prepare_run("demo", overrides(), default_run_id="edited")
        assert strict_json.read(run.split) == split

    def test_a_start_that_was_killed_half_way_is_repeated(self, home: Path) -> None:
        run = prepare_run("demo", overrides(), default_run_id="half")
        for path in (run.split, run.prosody_reference, run.leak_report):
            path.unlink()
        assert prepare_run("demo", overrides(), default_run_id="half") == run
        assert load_run_scenarios(run)

    def test_what_leaks_is_said_with_what_to_do(
        self, home: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = home / "corpus" / "sarcasm_data.json"
        clips = strict_json.read(path)
        for clip in clips.values():
            clip["context"] = ["All of these clips share one line."]
            clip["context_speakers"] = ["ODETTE"]
            clip["speaker"] = "MIRELA" if clip["sarcasm"] else "TOBIN"
        strict_json.write(path, clips)
        data = {"root": "corpus", "split": "random", "eval_ratio": 0.33}
        prepare_run("demo", overrides(data=data), default_run_id="leaky")
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert any("share a line" in line and "data.split=scene" in line for line in said)
        assert any("speaker alone" in line and "data.split=speaker" in line for line in said)

    def test_clips_that_changed_since_can_not_be_loaded(self, home: Path) -> None:
        run = prepare_run("demo", overrides(), default_run_id="again")
        write_corpus(home / "corpus", n_clips=40, seed=1)
        with pytest.raises(DataError, match=r"the clips changed since again was prepared"):
            load_run_scenarios(run)

    @pytest.mark.parametrize("name", ["split.json", "prosody_reference.json"])
    def test_clips_without_what_divides_or_describes_them_are_refused(
        self, home: Path, name: str
    ) -> None:
        run = prepare_run("demo", overrides(), default_run_id="again")
        (run.path / name).unlink()
        with pytest.raises(DataError, match=f"{name}.*there is no such file"):
            load_run_scenarios(run)

    @pytest.mark.parametrize(
        ("edit", "field", "said"),
        [
            pytest.param(
                lambda s: s["train"].append(s["held_out"].pop(_unjudged(s))), "train",
                "are not where data.split=scene puts them", id="moved, nothing else shows",
            ),
            pytest.param(
                lambda s: s["train"].append(s["held_out"].pop(0)) or s.update(judged=s["held_out"]),
                "train", "are not where", id="moved and all the rest judged",
            ),
            pytest.param(
                lambda s: s["train"].append("nope"), "train", "are no clips of the corpus",
                id="unknown to train on",
            ),
            pytest.param(
                lambda s: s["held_out"].append("nope"), "held_out", "are no clips of the corpus",
                id="unknown held out",
            ),
            pytest.param(lambda s: s["train"].pop(), "train", "are not where", id="one less"),
            pytest.param(lambda s: s["judged"].pop(), "judged", "are not where", id="judged less"),
            pytest.param(lambda s: s["judged"].reverse(), "judged", "are not where", id="order"),
            pytest.param(
                lambda s: s["train"].append(s["train"][0]), "train", "are not where", id="twice"
            ),
            pytest.param(
                lambda s: s.update(kind="random"), "kind", "is not 'scene'", id="other kind"
            ),
            pytest.param(lambda s: s.pop("seed"), "seed", "is not 42", id="no seed"),
        ],
    )  # fmt: skip
    def test_a_split_that_was_edited_is_refused(
        self, home: Path, edit: Callable[[dict[str, Any]], object], field: str, said: str
    ) -> None:
        sections = overrides(evaluation={"n_eval_clips": 5})
        run = prepare_run("demo", sections, default_run_id="edited")
        load_run_scenarios(run)
        split = strict_json.read(run.split)
        edit(split)
        strict_json.write(run.split, split)
        with pytest.raises(DataError) as caught:
            load_run_scenarios(run)
        problem = caught.value.problems[0]
        assert (problem.where, problem.field) == (str(run.split), field)
        assert said in problem.problem
        assert "train a new run" in problem.remedy

    def test_loaded_clips_are_described_by_the_training_clips(self, home: Path) -> None:
        run = prepare_run("demo", overrides(), default_run_id="again")
        scenarios, train = load_scenarios(home / "corpus"), run.require(run.split)["train"]
        expected = Reference.fit(scenarios, train)
        assert load_run_scenarios(run) == expected.described_clips(scenarios)
        assert expected != Reference.fit(scenarios, scenarios), "held-out clips would have counted"

    @pytest.mark.parametrize(
        ("run_id", "remedy"),
        [
            pytest.param("", "or start a new run", id="flow-run-that-is-retried"),
            pytest.param("again", "or choose another training.run_id", id="named"),
        ],
    )
    def test_data_that_changed_since_is_refused(self, home: Path, run_id: str, remedy: str) -> None:
        sections = overrides(training={"run_id": run_id})
        run = prepare_run("demo", sections, default_run_id="again")
        before = run.split.read_bytes()
        write_corpus(home / "corpus", n_clips=40, seed=1)
        with pytest.raises(ConfigError) as caught:
            prepare_run("demo", sections, default_run_id="again")
        (problem,) = caught.value.problems
        assert problem.field == "data_digest"
        assert strict_json.loads(before.decode())["data_digest"] in problem.problem
        assert problem.remedy == f"Bring the clips of data.root back as they were, {remedy}."
        assert run.split.read_bytes() == before

    @pytest.mark.parametrize(
        ("profile", "sections", "error", "message"),
        [
            pytest.param(
                "demo", {"grpo": {"max_stepz": 3}}, ConfigError, r"grpo\.max_stepz", id="knob"
            ),
            pytest.param(
                "demo", {"grpo": {"num_generations": 7}}, ConfigError, "does not divide", id="batch"
            ),
            pytest.param("dmeo", {}, ConfigError, "Choose one of", id="profile"),
            pytest.param(
                "demo", {"data": {"root": "nowhere"}}, DataError, "nowhere", id="no-data"
            ),
            pytest.param(
                "demo", {"model": {"precision": "fp16"}}, MachineError, r"model\.precision",
                id="machine",
            ),
        ],
    )  # fmt: skip
    def test_nothing_is_written_when_refused(
        self, home: Path, profile: str, sections: dict[str, Any], error: type, message: str
    ) -> None:
        with pytest.raises(error, match=message):
            prepare_run(profile, overrides(**sections), default_run_id="refused")
        assert sorted(path.name for path in home.iterdir()) == ["corpus"]


def test_training_on_one_label_is_refused(home):
    path = home / "corpus" / "sarcasm_data.json"
    clips = strict_json.read(path)
    strict_json.write(path, {key: {**clip, "sarcasm": True} for key, clip in clips.items()})
    with pytest.raises(DataError, match="clips of both labels on both sides"):
        check_run("demo", overrides())


@pytest.mark.parametrize("runs_dir", ["a file", "a file/below", "x" * 300, "~nobody-at-all/runs"])
def test_a_place_that_cannot_hold_runs_is_refused(runs_dir, home):
    (home / "a file").write_text("")
    with pytest.raises(ConfigError, match=r"training\.runs_dir"):
        check_run("demo", overrides(training={"runs_dir": runs_dir}))
