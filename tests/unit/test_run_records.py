"""Records that were edited, cut or of another version: named, never met by a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.adapter_record import TINY_BASE, adapter_record

from subtext import strict_json
from subtext.data.scenarios import load_reference
from subtext.errors import DataError, Problem
from subtext.policy.load import read_adapter_record
from subtext.prosody.reference import PUBLISHED, TERCILE_FIELDS
from subtext.run_dir import RunDir

SPLIT = {"train": ["a", "b"], "held_out": ["c", "d"], "judged": ["d"], "data_digest": "e" * 64}


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
