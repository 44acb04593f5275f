"""The training rows: the seed's order, balance and weights."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.corpus import write_corpus

from subtext.config import PromptConfig
from subtext.data.dataset import build_dataset, dataset_rows
from subtext.data.scenarios import load_scenarios
from subtext.data.splits import split_clip_ids
from subtext.errors import ConfigError, DataError
from subtext.prompts import SYSTEM_PROMPT, build_messages

SHARED = Path(__file__).resolve().parents[3] / "shared"
Scenarios = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Scenarios:
    return load_scenarios(write_corpus(tmp_path_factory.mktemp("corpus")))


def with_pivot(scenarios: Scenarios, *ids: str) -> Scenarios:
    return {clip_id: {**clip, "is_pivot": clip_id in ids} for clip_id, clip in scenarios.items()}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the seed's values are not beside the checkout")
def test_the_seeds_values_on_the_real_clips() -> None:
    clips = json.loads((SHARED / "mustard" / "sarcasm_data.json").read_text())
    train, _ = split_clip_ids(clips, 0.2, 42)
    golden = json.loads((SHARED / "seed" / "golden.json").read_text())["datasets"]
    assert golden
    for case in golden:
        rows = dataset_rows(
            with_pivot(clips, *case["pivot_ids"]), case["n_rows"], seed=case["seed"],
            allowed_clip_ids=train, class_balance=case["class_balance"],
        )  # fmt: skip
        ids = [row["clip_id"] for row in rows]
        assert ids[:5] == case["first5"]
        assert hashlib.sha256("\n".join(ids).encode()).hexdigest() == case["sha256"]


def test_values_pinned_in_every_clone(scenarios: Scenarios) -> None:
    ids = [row["clip_id"] for row in dataset_rows(scenarios, 6, seed=3)]
    assert ids == ["1_212", "2_303", "1_142", "2_261", "1_184", "2_177"]


def test_a_row_holds_the_chat_and_the_gold_label(scenarios: Scenarios) -> None:
    for row in dataset_rows(scenarios, 4):
        clip_id = row["clip_id"]
        gold = "sarcastic" if scenarios[clip_id]["sarcasm"] else "sincere"
        assert row == {
            "prompt": build_messages(clip_id, scenarios),
            "clip_id": clip_id,
            "gold": gold,
            "is_pivot": False,
        }
        assert row["prompt"][0] == {"role": "system", "content": SYSTEM_PROMPT}


@given(n_rows=st.integers(0, 130), seed=st.integers(0, 1000))
def test_classes_alternate_whatever_the_size(scenarios: Scenarios, n_rows: int, seed: int) -> None:
    rows = dataset_rows(scenarios, n_rows, seed)
    assert [row["gold"] for row in rows] == (["sarcastic", "sincere"] * n_rows)[:n_rows]


def test_only_allowed_clips_appear_and_each_equally_often(scenarios: Scenarios) -> None:
    train, held_out = split_clip_ids(scenarios, 0.5)
    counts = Counter(row["clip_id"] for row in dataset_rows(scenarios, 400, allowed_clip_ids=train))
    assert counts.keys() == train
    assert not counts.keys() & held_out


@pytest.mark.parametrize("weight", [1, 2, 5])
def test_a_pivot_clip_stands_as_often_as_its_weight(scenarios: Scenarios, weight: int) -> None:
    pivot = next(clip_id for clip_id, clip in scenarios.items() if clip["sarcasm"])
    pool = 19 + weight
    rows = dataset_rows(with_pivot(scenarios, pivot), 2 * pool, pivot_oversample=weight)
    counts = Counter(row["clip_id"] for row in rows if row["gold"] == "sarcastic")
    assert counts.pop(pivot) == weight
    assert set(counts.values()) == {1}
    assert {row["clip_id"] for row in rows if row["is_pivot"]} == {pivot}


def test_without_balance_the_pools_follow_one_another(scenarios: Scenarios) -> None:
    gold = [row["gold"] for row in dataset_rows(scenarios, 50, class_balance=False)]
    assert gold == ["sarcastic"] * 20 + ["sincere"] * 20 + ["sarcastic"] * 10


def test_the_prompt_knobs_reach_the_rows(scenarios: Scenarios) -> None:
    blind = PromptConfig(header="blind", speaker="masked", cue_rules=False)
    (row,) = dataset_rows(scenarios, 1, prompt=blind)
    assert row["prompt"] == build_messages(row["clip_id"], scenarios, blind)


def test_a_missing_class_is_refused_with_counts(scenarios: Scenarios) -> None:
    sincere = {clip_id for clip_id, clip in scenarios.items() if not clip["sarcasm"]}
    with pytest.raises(DataError, match="0 sarcastic, 20 sincere"):
        dataset_rows(scenarios, 4, allowed_clip_ids=sincere)


def test_allowed_ids_that_were_never_loaded_are_refused(scenarios: Scenarios) -> None:
    with pytest.raises(DataError, match="9_9"):
        dataset_rows(scenarios, 4, allowed_clip_ids={*scenarios, "9_9"})


def test_a_weight_that_would_drop_pivot_clips_is_refused(scenarios: Scenarios) -> None:
    with pytest.raises(ConfigError, match=r"data\.pivot_oversample"):
        dataset_rows(scenarios, 4, pivot_oversample=0)


def test_the_dataset_holds_the_rows(scenarios: Scenarios) -> None:
    pytest.importorskip("datasets", reason="datasets is not installed")
    dataset = build_dataset(scenarios, 5, seed=1)
    assert dataset.column_names == ["prompt", "clip_id", "gold", "is_pivot"]
    assert list(dataset) == dataset_rows(scenarios, 5, seed=1)
