"""Records that were edited, cut or of another version: named, never met by a traceback."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from support.adapter_record import TINY_BASE, adapter_record
from support.judged_run import evaluation_of

from subtext import strict_json
from subtext.data.scenarios import load_reference
from subtext.errors import DataError, Problem
from subtext.evaluation.records import score_completion
from subtext.policy.adapter_record import read_adapter_record
from subtext.prosody.reference import PUBLISHED, TERCILE_FIELDS
from subtext.run_dir import RunDir

SPLIT = {"train": ["a", "b"], "held_out": ["c", "d"], "judged": ["d"], "data_digest": "e" * 64}
EVALUATION = evaluation_of(champion=True)
GATE = {
    "decision": "stay",
    "reasons": [{"rule": "beats_base", "passed": False, "text": "Not better than the base."}],
}
CHAMPION = {
    "version": 3, "uri": "models:/subtext/3", "n_shared": 60, "n_trained_on": 11, "reason": None,
}  # fmt: skip
CLIP = {"sarcasm": True, "prosody": None, "is_pivot": False}
HELD_OUT = {
    "accuracy": 0.5,
    "passes": {"trained": {"results": [score_completion("c", CLIP, "no answer", True, 2)]}},
}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "demo-7").create()


def only_problem(error: DataError) -> Problem:
    (problem,) = error.problems
    assert problem.remedy
    return problem


def without(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


@pytest.mark.parametrize(
    ("split", "field", "said"),
    [
        pytest.param([], "content", "no object", id="a list"),
        pytest.param(None, "content", "no object", id="null is no missing file"),
        pytest.param(without(SPLIT, "data_digest"), "data_digest", "missing", id="no digest"),
        pytest.param({**SPLIT, "data_digest": None}, "data_digest", "string", id="null digest"),
        pytest.param(without(SPLIT, "judged"), "judged", "missing", id="nothing judged"),
        pytest.param({**SPLIT, "judged": []}, "judged", "at least 1", id="empty"),
        pytest.param({**SPLIT, "train": "ab"}, "train", "list", id="text is no list"),
        pytest.param({**SPLIT, "train": [1]}, "train.0", "string", id="number is no id"),
        pytest.param(
            {**SPLIT, "train": ["a", "c"]}, "held_out", "shares 1 clips with train, for example c",
            id="held-out clip trains too",
        ),
        pytest.param(
            {**SPLIT, "judged": ["a"]}, "judged", "1 clips not held out, for example a",
            id="training clip judged",
        ),
    ],
)  # fmt: skip
def test_a_split_without_two_sides_is_refused(
    run: RunDir, split: Any, field: str, said: str
) -> None:
    strict_json.write(run.split, split)
    with pytest.raises(DataError) as caught:
        run.require(run.split)
    problem = only_problem(caught.value)
    assert (problem.where, problem.field) == (str(run.split), field)
    assert said in problem.problem


def test_an_empty_split_names_all_it_lacks(run: RunDir) -> None:
    strict_json.write(run.split, {})
    with pytest.raises(DataError) as caught:
        run.require(run.split)
    assert {problem.field for problem in caught.value.problems} == set(SPLIT)


def put(record: Any, path: str, value: Any = ...) -> Any:
    """A copy of `record` with `value` at the dotted `path`; without a value, without that entry."""
    record = deepcopy(record)
    *parents, last = (int(key) if key.isdigit() else key for key in path.split("."))
    place = record
    for key in parents:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return record


RECORDS = {
    "metrics.json": EVALUATION, "gate.json": GATE, "champion.json": CHAMPION,
    "held_out_eval.json": HELD_OUT, "log_history.json": [{"step": 1, "reward": 0.5}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "path", "value", "said"),
    [
        ("metrics.json", "schema", ..., "missing"),
        ("metrics.json", "schema", "subtext.evaluation/2", "subtext.evaluation/1"),
        ("metrics.json", "verdict", ..., "missing"),
        ("metrics.json", "passes", ..., "missing"),
        ("metrics.json", "passes.trained.strict_rate", ..., "missing"),
        ("metrics.json", "passes.base.f1_weighted", ..., "missing"),
        ("metrics.json", "passes.base.accuracy", "high", "number"),
        ("metrics.json", "passes.base.accuracy_interval", 0.5, "list"),
        ("metrics.json", "baselines", ..., "missing"),
        ("metrics.json", "baselines.speaker", 0.69, "object"),
        ("metrics.json", "comparisons", {}, "list"),
        ("metrics.json", "comparisons.0.p_holm", ..., "missing"),
        ("metrics.json", "comparisons.0.interval", None, "list"),
        ("metrics.json", "comparisons.0.verdict", "best", "not distinguishable"),
        ("metrics.json", "comparisons.0.kind", "model", "baseline"),
        ("metrics.json", "ablations.no_prosody.flip_rate", ..., "missing"),
        ("metrics.json", "alarms", ..., "missing"),
        ("metrics.json", "warnings", "leak", "list"),
        ("metrics.json", "smallest_gain", ..., "missing"),
        ("metrics.json", "smallest_gain", "10 %", "number"),
        ("metrics.json", "champion", ..., "missing"),
        ("metrics.json", "champion.version", "three", "integer"),
        ("gate.json", "decision", ..., "missing"),
        ("gate.json", "decision", "promoted", "promote"),
        ("gate.json", "reasons", {"beats_base": True}, "list"),
        ("gate.json", "reasons.0.text", ..., "missing"),
        ("gate.json", "reasons.0.passed", "perhaps", "boolean"),
        ("champion.json", "version", ..., "missing"),
        ("champion.json", "n_shared", "all", "integer"),
        ("champion.json", "uri", 3, "string"),
        ("champion.json", "reason", ..., "missing"),
        ("held_out_eval.json", "passes", ..., "missing"),
        ("held_out_eval.json", "passes", ["trained"], "object"),
        ("held_out_eval.json", "passes.trained.results", ..., "missing"),
        ("held_out_eval.json", "passes.trained.results", {}, "list"),
        ("held_out_eval.json", "passes.trained.results.0", "c", "object"),
        ("held_out_eval.json", "passes.trained.results.0.clip_id", ..., "missing"),
        ("held_out_eval.json", "passes.trained.results.0.correct", "yes", "boolean"),
        ("held_out_eval.json", "passes.trained.results.0.gold", ..., "missing"),
        ("metrics.json", "passes.trained.accuracy", "0.5", "number"),
        ("log_history.json", "0.reward", "high", "number"),
        ("held_out_eval.json", "passes.trained.results.0.correct", "mostly", "boolean"),
    ],
)
def test_a_broken_record_of_the_evaluation_is_one_refusal(
    run: RunDir, name: str, path: str, value: Any, said: str
) -> None:
    file = strict_json.write(run.path / name, put(RECORDS[name], path, value))
    with pytest.raises(DataError, match="Run directory refused") as caught:
        run.read(file)
    problem = only_problem(caught.value)
    assert (problem.where, problem.field) == (str(file), path)
    assert said in problem.problem
    assert "Copy it back" in problem.remedy


@pytest.mark.parametrize("content", [[], None], ids=["a list", "null"])
@pytest.mark.parametrize("name", sorted(RECORDS.keys() - {"log_history.json"}))
def test_a_record_is_an_object(run: RunDir, name: str, content: Any) -> None:
    with pytest.raises(DataError) as caught:
        run.read(strict_json.write(run.path / name, content))
    assert only_problem(caught.value).field == "content"


@pytest.mark.parametrize("name", ["metrics.json", "held_out_eval.json"])
def test_an_evaluation_without_the_trained_policy_says_so(run: RunDir, name: str) -> None:
    passes = {"base": RECORDS[name]["passes"]["trained"]}
    file = strict_json.write(run.path / name, {**RECORDS[name], "passes": passes})
    with pytest.raises(DataError, match=r"passes = .* lacks the trained policy"):
        run.read(file)


@pytest.mark.parametrize(
    ("name", "record"),
    [
        pytest.param("metrics.json", EVALUATION, id="evaluation"),
        pytest.param("metrics.json", put(EVALUATION, "champion", None), id="no champion"),
        pytest.param("metrics.json", put(EVALUATION, "smallest_gain", None), id="too few clips"),
        pytest.param("metrics.json", put(EVALUATION, "ablations", {}), id="no altered prompt"),
        pytest.param("gate.json", GATE, id="gate"),
        pytest.param("champion.json", CHAMPION, id="champion"),
        pytest.param("champion.json", put(CHAMPION, "reason", "It is gone"), id="lost champion"),
        pytest.param("held_out_eval.json", HELD_OUT, id="records"),
    ],
)
def test_a_whole_record_is_read_as_it_was_written(run: RunDir, name: str, record: Any) -> None:
    path = strict_json.write(run.path / name, record)
    assert run.require(path) == strict_json.loads(strict_json.dumps(record))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "can't be read", id="empty"),
        pytest.param(b'{"decision": "sta', "can't be read", id="cut by a full disk"),
        pytest.param(b'{"decision": NaN}', "can't be read", id="NaN"),
        pytest.param(b"\xff\xfe", "can't be read", id="no text"),
    ],
)
@pytest.mark.parametrize("name", ["metrics.json", "gate.json", "champion.json"])
def test_a_file_that_holds_no_json_is_named(
    run: RunDir, name: str, content: bytes, said: str
) -> None:
    (run.path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        run.read(run.path / name)
    problem = only_problem(caught.value)
    assert problem.field == name
    assert said in problem.problem


@pytest.mark.parametrize(
    ("record", "field"),
    [
        pytest.param(None, "content", id="null"),
        pytest.param(without(PUBLISHED.record(), "terciles"), "terciles", id="field missing"),
        pytest.param(
            {**PUBLISHED.record(), "speakers_hz": {"ANNA": 0}}, "speakers_hz.ANNA", id="0 Hz"
        ),
    ],
)
def test_a_reference_that_is_none_names_its_file(run: RunDir, record: Any, field: str) -> None:
    strict_json.write(run.prosody_reference, record)
    with pytest.raises(DataError) as caught:
        load_reference(run)
    problem = only_problem(caught.value)
    assert (problem.where, problem.field) == (str(run.prosody_reference), field)


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        *(
            pytest.param(without(adapter_record(), name), name, ..., id=f"no {name}")
            for name in adapter_record()
            if name != "schema"
        ),
        pytest.param(
            adapter_record(prosody_reference=None), "prosody_reference", None, id="null reference"
        ),
        pytest.param(
            adapter_record(prosody_reference={**PUBLISHED.record(), "terciles": {}}),
            "prosody_reference.terciles", {}, id="reference without terciles",
        ),
        pytest.param(
            adapter_record(base={**TINY_BASE, "source": "ftp"}), "base.source", "ftp", id="source"
        ),
        pytest.param(
            adapter_record(cast={"speakers": "ANNA", "shows": []}), "cast.speakers", "ANNA",
            id="text would be a cast of letters",
        ),
        pytest.param(
            adapter_record(prompt={"header": "loud"}), "prompt.header", "loud", id="prompt"
        ),
        pytest.param(adapter_record(dtype="int8"), "dtype", "int8", id="format"),
        pytest.param(adapter_record(max_new_tokens=0), "max_new_tokens", 0, id="no room to answer"),
        pytest.param(adapter_record(max_new_tokens="8"), "max_new_tokens", "8", id="text"),
        pytest.param(adapter_record(more=1), "more", 1, id="more than is read"),
        pytest.param(without(adapter_record(), "schema"), "schema", None, id="no version"),
        pytest.param(
            adapter_record(schema="subtext-adapter/1"), "schema", "subtext-adapter/1",
            id="another version shows its name alone",
        ),
        pytest.param([], "schema", None, id="a list"),
    ],
)  # fmt: skip
def test_an_adapter_that_can_not_answer_as_trained_is_refused(
    tmp_path: Path, record: Any, field: str, value: Any
) -> None:
    path = strict_json.write(tmp_path / "subtext.json", record)
    with pytest.raises(DataError, match="No adapter of Subtext's") as caught:
        read_adapter_record(tmp_path)
    problem = only_problem(caught.value)
    assert (problem.where, problem.field) == (str(path), field)
    assert value in (..., problem.value)


def test_a_whole_adapter_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    strict_json.write(tmp_path / "subtext.json", adapter_record())
    assert read_adapter_record(tmp_path) == adapter_record()
    assert set(adapter_record()["prosody_reference"]["terciles"]) == set(TERCILE_FIELDS)


def test_a_clip_judged_twice_is_named(run: RunDir) -> None:
    record = HELD_OUT["passes"]["trained"]["results"][0]
    strict_json.write(run.held_out_eval, {"passes": {"trained": {"results": [record, record]}}})
    with pytest.raises(DataError, match="judges 1 clips twice, for example c"):
        run.require(run.held_out_eval)


def test_a_number_beyond_floats_is_no_record(run: RunDir) -> None:
    run.log_history.write_text('[{"step": 1, "reward": 1e999}]')
    with pytest.raises(DataError, match="1e999 is too large"):
        run.require(run.log_history)


def test_other_folders_are_no_checkpoints(run: RunDir) -> None:
    for name in ("checkpoint-20", "checkpoint-3", "checkpoint-best", "checkpoint-"):
        (run.path / name).mkdir()
    found = [folder.name for folder in run.checkpoints.values()]
    assert found == ["checkpoint-3", "checkpoint-20"]
    assert list(run.checkpoints) == [3, 20]
