"""The split: the seed's values, disjoint sides, and the prosody filter after the split."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtext.data.splits import select_clips, split_clip_ids
from subtext.errors import ConfigError, DataError

SHARED = Path(__file__).resolve().parents[3] / "shared"


def clips(n: int, prosody_every: int = 1) -> dict[str, dict[str, Any]]:
    return {
        f"1_{index}": {
            "sarcasm": index % 2 == 0,
            "prosody": {"x": 1} if index % prosody_every == 0 else None,
        }
        for index in range(n)
    }


@pytest.mark.skipif(not SHARED.is_dir(), reason="the seed's values are not beside the checkout")
def test_the_seeds_values_on_the_real_clips() -> None:
    scenarios = json.loads((SHARED / "mustard" / "sarcasm_data.json").read_text())
    golden = json.loads((SHARED / "seed" / "golden.json").read_text())["splits"]
    assert golden
    for case in golden:
        train, held_out = split_clip_ids(scenarios, case["eval_ratio"], case["seed"])
        assert (len(train), len(held_out)) == (case["n_train"], case["n_eval"])
        digest = hashlib.sha256("\n".join(sorted(held_out)).encode()).hexdigest()
        assert digest == case["eval_sha256"]


def test_values_pinned_in_every_clone() -> None:
    train, held_out = split_clip_ids(clips(10), 0.3, seed=7)
    assert sorted(held_out) == ["1_1", "1_3", "1_8"]
    assert len(train) == 7


@given(n=st.integers(2, 200), ratio=st.floats(0.01, 0.99), seed=st.integers(0, 2**31))
def test_sides_are_disjoint_complete_and_independent_of_file_order(
    n: int, ratio: float, seed: int
) -> None:
    scenarios = clips(n)
    if not 0 < int(n * ratio) < n:
        with pytest.raises(DataError):
            split_clip_ids(scenarios, ratio, seed)
        return
    train, held_out = split_clip_ids(scenarios, ratio, seed)
    assert not train & held_out
    assert train | held_out == scenarios.keys()
    assert len(held_out) == int(n * ratio)
    assert split_clip_ids(dict(reversed(scenarios.items())), ratio, seed) == (train, held_out)


@pytest.mark.parametrize("ratio", [0, 0.0, 1, 1.0, 1.5, -0.1, math.nan, math.inf, True])
def test_a_ratio_outside_0_and_1_is_refused(ratio: float) -> None:
    with pytest.raises(ConfigError) as caught:
        split_clip_ids(clips(10), ratio)
    (problem,) = caught.value.problems
    assert problem.field == "data.eval_ratio"
    assert problem.value is ratio
    assert problem.remedy


@pytest.mark.parametrize(
    ("n", "ratio"), [(4, 0.2), (0, 0.5), (1, 0.5)], ids=["rounds to none", "no clips", "one clip"]
)
def test_a_split_that_leaves_a_side_empty_is_refused(n: int, ratio: float) -> None:
    with pytest.raises(DataError, match=r"data\.eval_ratio") as caught:
        split_clip_ids(clips(n), ratio)
    assert f"of {n}" in str(caught.value)


def test_prosody_filters_after_the_split() -> None:
    scenarios = clips(40, prosody_every=2)
    _, held_out = split_clip_ids(scenarios, 0.5)
    assert select_clips(held_out, scenarios, require_prosody=False) == sorted(held_out)
    filtered = select_clips(held_out, scenarios, require_prosody=True)
    assert filtered == sorted(i for i in held_out if scenarios[i]["prosody"])
    assert 0 < len(filtered) < len(held_out)


def test_a_filter_that_leaves_nothing_names_the_knob_and_the_remedy() -> None:
    scenarios = {"1_1": {"prosody": None}}
    with pytest.raises(DataError, match=r"data\.require_prosody.*prosody from-tracks"):
        select_clips({"1_1"}, scenarios, require_prosody=True)
