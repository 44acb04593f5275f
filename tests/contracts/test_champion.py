"""The registry that can be trusted: reloading, the champion on a run's clips, gate and moves.

Real runs around a tiny policy in a SQLite store of MLflow. What the gate decides on is written by
hand where a tiny policy would never earn it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from safetensors.torch import load_file
from support.evaluation import example
from support.registered_run import environment, prepared_run, registered_run

from subtext import strict_json, tracking
from subtext.data.scenarios import load_scenarios
from subtext.errors import DataError, TrackingError
from subtext.evaluation.held_out import judge_held_out
from subtext.progress import Progress
from subtext.run_dir import RunDir

NAME = "subtext"
ROW = {
    "n": 32, "accuracy": 0.9, "accuracy_against": 0.5, "difference": 0.4, "interval": [0.2, 0.6],
    "n_only_ours": 14, "n_only_theirs": 1, "p_value": 0.001, "p_holm": 0.004, "verdict": "better",
}  # fmt: skip
COMPARED = ("base", "train majority", "speaker", "TF-IDF line + context")


@pytest.fixture(scope="module")
def store(home: Path) -> mlflow.MlflowClient:
    return mlflow.MlflowClient(tracking.tracking_uri())


@pytest.fixture(scope="module")
def first(home: Path) -> RunDir:
    run = registered_run(home, "first", seed=1)
    judge_held_out(run)
    return run


@pytest.fixture(scope="module")
def second(home: Path, first: RunDir) -> RunDir:
    """On another split than `first`, so that it holds out clips which that trained on."""
    return registered_run(home, "second", seed=2, split_seed=1)


@pytest.fixture
def champion_is(store: mlflow.MlflowClient) -> Iterator[Any]:
    """Call it with a version to make that one the champion; afterwards there is none."""

    def set_champion(run: RunDir) -> int:
        version = version_of(run)
        store.set_registered_model_alias(NAME, "champion", str(version))
        return version

    yield set_champion
    model = store.get_registered_model(NAME)
    if "champion" in model.aliases:
        store.delete_registered_model_alias(NAME, "champion")
    store.delete_registered_model_tag(NAME, "champion.history")
    for found in store.search_model_versions(f"name = '{NAME}'"):
        for key in found.tags:
            if key.startswith("champion."):
                store.delete_model_version_tag(NAME, found.version, key)


def local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def version_of(run: RunDir) -> int:
    return int(strict_json.read(run.tracking)["model"]["version"])


def holder(store: mlflow.MlflowClient) -> int | None:
    alias = store.get_registered_model(NAME).aliases.get("champion")
    return None if alias is None else int(alias)


def history(store: mlflow.MlflowClient) -> list[dict[str, Any]]:
    return json.loads(store.get_registered_model(NAME).tags.get("champion.history", "[]"))


def evaluated(run: RunDir, against: int | None = None, **row: Any) -> RunDir:
    """`run` with an evaluation that beats everything by `ROW` and `row`."""
    rows = [{"name": name, "kind": "policy", **ROW, **row} for name in COMPARED]
    champion = None
    if against is not None:
        rows.append({"name": "champion", "kind": "policy", **ROW})
        champion = {"version": against, "uri": f"models:/{NAME}/{against}", "reason": None}
        champion |= {"n_shared": 32, "n_trained_on": 0}
    found = example(n_clips=40).evaluation
    passes = {"trained": found["passes"]["trained"] | {"strict_rate": 1.0}}
    changes = {"passes": passes, "comparisons": rows, "champion": champion}
    strict_json.write(run.metrics, {**found, "alarms": [], "warnings": [], **changes})
    return run


class TestReload:
    def test_fresh_process_gives_the_recorded_answers_exactly(
        self, home: Path, first: RunDir, tmp_path: Path
    ) -> None:
        records = strict_json.read(first.held_out_eval)["results"]
        scenarios = load_scenarios("corpus")
        keys = ("utterance", "context", "context_speakers", "speaker", "prosody")
        rows = [
            {"clip_id": clip_id, **{key: scenarios[clip_id][key] for key in keys}}
            for clip_id in (record["clip_id"] for record in records)
        ]
        strict_json.write(tmp_path / "rows.json", rows)
        program = (
            "import json, sys, mlflow, pandas as pd\n"
            f"model = mlflow.pyfunc.load_model('models:/{NAME}/{version_of(first)}')\n"
            "rows = json.load(open('rows.json'))\n"
            "json.dump(model.predict(pd.DataFrame(rows)).to_dict('records'), open('out', 'w'))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment(home),
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        keys = ("predicted", "confidence", "p_sarcastic", "well_formed")
        expected = [tuple(record[key] for key in keys) for record in records]
        keys = ("label", "confidence", "p_sarcastic", "well_formed")
        answers = json.loads((tmp_path / "out").read_text())
        assert [tuple(answer[key] for key in keys) for answer in answers] == expected
        # they are no blank sheets, and differ
        assert sum(record["well_formed"] for record in records) >= len(records) // 2
        assert all(
            (answer["reasoning"] or "") in record["completion_text"]
            for answer, record in zip(answers, records, strict=True)
        )

    @pytest.mark.parametrize("by", ["alias", "version", "run folder", "run id", "adapter"])
    def test_a_judge_is_loaded_by_any_of_its_names(
        self, first: RunDir, second: RunDir, by: str
    ) -> None:
        model = {
            "alias": f"models:/{NAME}@challenger",
            "version": f"models:/{NAME}/{version_of(second)}",
            "run folder": str(second.path),
            "run id": second.run_id,
            "adapter": str(second.adapter),
        }[by]
        judge = tracking.load_judge(model)
        assert judge.batch_size == 5
        saved = load_file(second.adapter / "adapter_model.safetensors")
        loaded = judge.model.state_dict()
        for name, weights in saved.items():
            if "lora_B" in name:
                assert (loaded[name.replace("lora_B", "lora_B.trained")] == weights).all()
                assert weights.abs().sum() > 0

    @pytest.mark.parametrize(
        ("model", "error", "said"),
        [
            pytest.param("models:/subtext@nobody", TrackingError, "challenger", id="alias"),
            pytest.param("models:/subtext/99", TrackingError, "no such version", id="version"),
            pytest.param("models:/other/1", TrackingError, "Choose of: none", id="name"),
            pytest.param("models:/no@champion", TrackingError, "Aliases .* none", id="no-alias"),
            pytest.param("models:/subtext", TrackingError, "no registered version", id="half"),
            pytest.param("runs/none", DataError, "is no registered version", id="folder"),
        ],
    )  # fmt: skip
    def test_what_is_not_there_is_named(
        self, second: RunDir, model: str, error: type[Exception], said: str
    ) -> None:
        with pytest.raises(error, match=f"(?s){said}"):
            tracking.load_judge(model)


class TestJudgeChampion:
    def test_no_champion_and_its_own_version_are_not_judged(
        self, first: RunDir, second: RunDir, champion_is: Any
    ) -> None:
        assert tracking.judge_champion(second) is None
        champion_is(second)
        assert tracking.judge_champion(second) is None
        assert not second.champion.exists()

    def test_it_judges_the_clips_it_was_not_trained_on_as_it_did_itself(
        self, first: RunDir, second: RunDir, champion_is: Any
    ) -> None:
        version = champion_is(first)
        told: list[Progress] = []
        records = tracking.judge_champion(second, told.append)
        assert records is not None
        trained_on = set(strict_json.read(first.split)["train"])
        judged = strict_json.read(second.split)["judged"]
        assert [record["clip_id"] for record in records] == [
            clip_id for clip_id in judged if clip_id not in trained_on
        ]
        assert 0 < len(records) < len(judged)
        assert strict_json.read(second.champion) == {
            "version": version, "uri": f"models:/{NAME}/{version}", "n_shared": len(records),
            "n_trained_on": len(judged) - len(records), "reason": None,
        }  # fmt: skip
        lines = (second.judgements / "champion.jsonl").read_text().splitlines()
        by_clip = {record["clip_id"]: record for record in map(json.loads, lines)}
        assert [by_clip[record["clip_id"]] for record in records] == records
        assert len(lines) == len(records)
        assert (told[-1].stage, told[-1].step) == ("judge champion", len(records))
        # It held these clips out itself: what it said of them then, it says again.
        itself = {
            record["clip_id"]: record for record in strict_json.read(first.held_out_eval)["results"]
        }
        same = [record["predicted"] == itself[record["clip_id"]]["predicted"] for record in records]
        assert sum(same) >= len(same) - 1  # other batches round otherwise

    @pytest.mark.parametrize(
        ("case", "said"),
        [
            ("other data", "trained on other clips"),
            ("no split", "split.json"),
            ("old adapter", "subtext-adapter/3"),
            ("other base", "sha256"),
            ("no base", "no folder with config.json"),
        ],
    )
    def test_what_keeps_it_from_being_compared_is_on_record(
        self, home: Path, first: RunDir, second: RunDir, champion_is: Any,
        store: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
        case: str, said: str,
    ) -> None:  # fmt: skip
        champion_is(first)
        if case in ("other data", "no split"):
            run = store.get_run(strict_json.read(first.tracking)["run_id"])
            changed = local(run.info.artifact_uri) / "split.json"
        else:
            version = store.get_model_version(NAME, str(version_of(first)))
            changed = local(version.source) / "artifacts" / "adapter" / "subtext.json"
        kept = changed.read_bytes()
        content = strict_json.read(changed)
        if case == "other data":
            strict_json.write(changed, content | {"data_digest": "other"})
        elif case == "no split":
            changed.unlink()
        elif case == "old adapter":
            strict_json.write(changed, content | {"schema": "subtext-adapter/2"})
        elif case == "other base":
            strict_json.write(changed, content | {"base": content["base"] | {"sha256": "0" * 64}})
        else:
            monkeypatch.setenv("SUBTEXT_BASE_MODEL", str(tmp_path / "gone"))
        try:
            assert tracking.judge_champion(second) is None
        finally:
            changed.write_bytes(kept)
        found = strict_json.read(second.champion)
        assert found["n_shared"] == 0
        assert said in found["reason"]
        assert not (second.judgements / "champion.jsonl").exists()


class TestGate:
    def test_it_promotes_the_first_that_passes_once(
        self, first: RunDir, store: mlflow.MlflowClient, champion_is: Any
    ) -> None:
        gate = tracking.apply_gate(evaluated(first))
        assert gate["decision"] == "promote"
        assert strict_json.read(first.gate) == gate
        version = version_of(first)
        assert holder(store) == version
        found = store.get_model_version(NAME, str(version))
        run = store.get_run(strict_json.read(first.tracking)["run_id"])
        for tags in (found.tags, run.data.tags):
            assert tags["gate.decision"] == "promote"
            assert tags["gate.beats_base"].startswith("passed: Better than the base")
        assert found.tags["champion.who"] == "the gate"
        assert found.tags["champion.previous"] == "null"
        assert "gate.json" in {item.path for item in store.list_artifacts(run.info.run_id)}
        before = history(store)
        assert [(move["from"], move["to"], move["forced"]) for move in before] == [
            (None, version, False)
        ]
        assert tracking.apply_gate(first) == gate
        assert history(store) == before
        tracking.undo_champion(NAME, "Ada", "too early")
        assert tracking.apply_gate(first) == gate  # a rerun does not take a person's word back
        assert holder(store) is None

    def test_a_tie_stays_challenger(
        self, first: RunDir, store: mlflow.MlflowClient, champion_is: Any
    ) -> None:
        tie = {"difference": 0.0, "interval": [-0.1, 0.1], "verdict": "not distinguishable"}
        gate = tracking.apply_gate(evaluated(first, **tie))
        assert gate["decision"] == "stay"
        assert holder(store) is None
        assert history(store) == []
        tags = store.get_model_version(NAME, str(version_of(first))).tags
        assert tags["gate.decision"] == "stay"
        assert tags["gate.beats_base"].startswith("failed: Not better than the base")

    def test_a_better_one_replaces_the_champion_it_was_judged_beside(
        self, first: RunDir, second: RunDir, store: mlflow.MlflowClient, champion_is: Any
    ) -> None:
        before = champion_is(first)
        assert tracking.apply_gate(evaluated(second, against=before))["decision"] == "promote"
        assert holder(store) == version_of(second)
        assert tracking.undo_champion(NAME, "Ada", "it was rude")["to"] == before
        assert holder(store) == before

    @pytest.mark.parametrize("against", [None, 99])
    def test_another_champion_by_now_stops_it(
        self, first: RunDir, second: RunDir, store: mlflow.MlflowClient, champion_is: Any,
        against: int | None,
    ) -> None:  # fmt: skip
        before = champion_is(first)
        for _ in range(2):
            gate = tracking.apply_gate(evaluated(second, against=against))
            assert gate["decision"] == "stay"
            [objection] = [item for item in gate["reasons"] if not item["passed"]]
            assert objection["rule"] == "same_champion"
            assert f"version {before} by now" in objection["text"]
            assert holder(store) == before
        tags = store.get_model_version(NAME, str(version_of(second))).tags
        assert tags["gate.decision"] == "stay"
        assert tracking.apply_gate(evaluated(second, against=before))["decision"] == "promote"
        tags = store.get_model_version(NAME, str(version_of(second))).tags
        assert "gate.same_champion" not in tags

    def test_an_older_version_does_not_replace_a_newer_one(
        self, first: RunDir, second: RunDir, store: mlflow.MlflowClient, champion_is: Any
    ) -> None:
        newer = champion_is(second)
        gate = tracking.apply_gate(evaluated(first, against=newer))
        assert gate["decision"] == "stay"
        assert "is older than the champion" in gate["reasons"][-1]["text"]
        assert holder(store) == newer

    def test_a_run_without_version_or_evaluation_is_refused(self, home: Path) -> None:
        run = prepared_run(home, "unregistered")
        with pytest.raises(DataError, match=r"metrics\.json"):
            tracking.apply_gate(run)
        with pytest.raises(TrackingError, match="Register it first"):
            tracking.apply_gate(evaluated(run))


class TestMoves:
    def test_a_version_that_was_held_back_needs_force(
        self, first: RunDir, second: RunDir, store: mlflow.MlflowClient, champion_is: Any
    ) -> None:
        tracking.apply_gate(evaluated(first, verdict="worse"))
        version = version_of(first)
        with pytest.raises(TrackingError, match=r"(?s)did not promote it .*Not better.*--force"):
            tracking.move_champion(NAME, version, "Ada", "for the demo")
        assert holder(store) is None
        move = tracking.move_champion(NAME, version, "Ada", "for the demo", force=True)
        assert (move["forced"], move["who"], move["why"]) == (True, "Ada", "for the demo")
        assert holder(store) == version
        tags = store.get_model_version(NAME, str(version)).tags
        assert tags["champion.forced"] == "true"
        assert tags["champion.who"] == "Ada"
        assert tags["champion.why"] == "for the demo"
        assert tags["champion.when"] == move["when"]
        assert history(store) == [move]
        with pytest.raises(TrackingError, match="already"):
            tracking.move_champion(NAME, version, "Ada", "again")

    def test_moves_are_undone_one_by_one(
        self, first: RunDir, second: RunDir, store: mlflow.MlflowClient, champion_is: Any
    ) -> None:
        one, two = version_of(first), version_of(second)
        tracking.move_champion(NAME, one, "Ada", "first", force=True)
        tracking.move_champion(NAME, two, "Ada", "second", force=True)
        assert tracking.undo_champion(NAME, "Bob", "back")["to"] == one
        back = tracking.move_champion(NAME, two, "Bob", "it was champion before")
        assert back["forced"] is False
        assert [tracking.undo_champion(NAME, "Bob", "back")["to"] for _ in range(2)] == [one, None]
        assert holder(store) is None
        with pytest.raises(TrackingError, match="no move to undo"):
            tracking.undo_champion(NAME, "Bob", "back")
        assert tracking.current_champion(NAME) is None

    def test_an_alias_moved_by_other_means_is_not_undone(
        self, first: RunDir, second: RunDir, champion_is: Any
    ) -> None:
        tracking.move_champion(NAME, version_of(first), "Ada", "first", force=True)
        champion_is(second)
        with pytest.raises(TrackingError, match="by other means"):
            tracking.undo_champion(NAME, "Ada", "back")

    @pytest.mark.parametrize(
        ("version", "who", "why", "said"),
        [
            (99, "Ada", "x", "Choose of: 1"),
            (1, " ", "x", "who = "),
            (1, "Ada", "", "why = "),
            (1, "Ada", "x" * 501, "longer than 500"),
            (1, "A" * 101, "x", "longer than 100"),
            (1, "Ada\nBob", "x", "who = .*control characters"),
            (1, "Ada", "a\x1b[2Jb", "why = .*control characters"),
            (1, "Ada", "caf\udce9", "why = .*control characters"),
            (1, " The  gate ", "x", "is how the gate signs"),
        ],
    )
    def test_refusals(
        self, first: RunDir, store: mlflow.MlflowClient, champion_is: Any,
        version: int, who: str, why: str, said: str,
    ) -> None:  # fmt: skip
        with pytest.raises(TrackingError, match=said):
            tracking.move_champion(NAME, version, who, why, force=True)
        assert holder(store) is None
        with pytest.raises(TrackingError, match="no registered model"):
            tracking.move_champion("other", 1, "Ada", "x")

    def test_current_champion(self, first: RunDir, champion_is: Any) -> None:
        assert tracking.current_champion(NAME) is None
        assert tracking.current_champion("other") is None
        version = champion_is(first)
        found = tracking.current_champion(NAME)
        assert found is not None
        assert found["version"] == version
        assert found["uri"] == f"models:/{NAME}/{version}"
        assert found["run_name"] == "first"
        assert found["run_id"] == strict_json.read(first.tracking)["run_id"]

    def test_nothing_is_made_where_there_is_no_store(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
        assert tracking.current_champion(NAME) is None
        with pytest.raises(TrackingError, match="no store is there yet"):
            tracking.champion_overview(NAME)
        assert list(tmp_path.iterdir()) == []


def test_no_folder_of_this_machine_in_version_and_tags(
    home: Path, first: RunDir, store: mlflow.MlflowClient, tmp_path: Path
) -> None:
    version = store.get_model_version(NAME, str(version_of(first)))
    assert version.tags["base_name"] == "base"
    assert len(version.tags["base_sha256"]) == 64
    folder = Path(shutil.copytree(local(version.source), tmp_path / "model"))
    files = [path for path in folder.rglob("*") if path.is_file()]
    outside = [path for path in files if "code" not in path.relative_to(folder).parts]
    leaks = [path for path in outside if str(home).encode() in path.read_bytes()]
    assert len(outside) > 8
    assert leaks == []
    assert not [value for value in version.tags.values() if str(home) in value]
