"""The splits: the seed's values, whole groups, sizes, refusals, and the prosody filter after."""

from __future__ import annotations

import hashlib
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from subtext.config import DataConfig
from subtext.data.scenes import pairs_across, scene_of
from subtext.data.splits import divide, select_clips, split_clip_ids
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


KINDS = ["random", "stratified", "scene", "speaker"]


@st.composite
def corpora(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """Up to 40 clips; some say a line that another says, names and labels are drawn."""
    n = draw(st.integers(2, 40))
    n_lines, n_names = draw(st.integers(1, 50)), draw(st.integers(1, 12))
    rows = st.tuples(st.integers(0, n_lines), st.integers(0, n_names), st.booleans())
    return {
        f"1_{index}": {
            "utterance": f"this is the line {line}" if line else f"a line of its own {index}",
            "context": [],
            "speaker": f"S{name}",
            "show": f"SHOW{name % 3}",
            "sarcasm": sarcasm,
            "prosody": None,
        }
        for index, (line, name, sarcasm) in enumerate(draw(st.lists(rows, min_size=n, max_size=n)))
    }


def groups_of(scenarios: Any, kind: str) -> dict[str, str]:
    if kind == "scene":
        return scene_of(scenarios)
    return {i: clip["speaker"] if kind == "speaker" else i for i, clip in scenarios.items()}


def n_by_label(ids: Any, scenarios: Any) -> tuple[int, int]:
    labels = [scenarios[clip_id]["sarcasm"] for clip_id in ids]
    return labels.count(True), labels.count(False)


@settings(deadline=None)
@given(
    scenarios=corpora(),
    kind=st.sampled_from(KINDS),
    ratio=st.sampled_from([0.1, 0.2, 0.5, 0.7]),
    seed=st.integers(0, 3),
)
def test_every_kind_divides_or_says_why_not(
    scenarios: dict[str, dict[str, Any]], kind: str, ratio: float, seed: int
) -> None:
    data = DataConfig(split=kind, eval_ratio=ratio, split_seed=seed)
    try:
        train, held_out = divide(scenarios, data, Path())
    except DataError as error:
        assert all(problem.remedy for problem in error.problems)
        return
    assert not train & held_out
    assert train | held_out == scenarios.keys()
    assert divide(dict(reversed(scenarios.items())), data, Path()) == (train, held_out)
    if kind == "random":
        assert (train, held_out) == split_clip_ids(scenarios, ratio, seed)
        return
    groups = groups_of(scenarios, kind)
    assert not {groups[clip_id] for clip_id in train} & {groups[clip_id] for clip_id in held_out}
    assert all((*n_by_label(train, scenarios), *n_by_label(held_out, scenarios)))
    if kind == "stratified":
        assert len(held_out) == int(len(scenarios) * ratio)


@settings(deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=8),
    ratio=st.sampled_from([0.2, 0.33, 0.5, 0.75]),
    seed=st.integers(0, 5),
)
def test_no_choice_of_whole_speakers_is_nearer_to_what_is_wanted(
    sizes: list[tuple[int, int]], ratio: float, seed: int
) -> None:
    scenarios = {
        f"1_{speaker}_{index}": {"speaker": f"S{speaker}", "sarcasm": index < sarcastic}
        for speaker, (sarcastic, sincere) in enumerate(sizes)
        for index in range(sarcastic + sincere)
    }
    n, size, totals = len(scenarios), int(len(scenarios) * ratio), n_by_label(scenarios, scenarios)
    n_sarcastic = math.floor(size * totals[0] / n + 0.5) if n else 0
    wanted = (n_sarcastic, size - n_sarcastic)
    assume(all(0 < wanted[label] < totals[label] for label in (0, 1)))

    def off(found: tuple[int, int]) -> int:
        return abs(found[0] - wanted[0]) + abs(found[1] - wanted[1])

    sums = {(0, 0)}
    for sarcastic, sincere in sizes:
        sums |= {(one + sarcastic, other + sincere) for one, other in sums}
    possible = [found for found in sums if all(0 < found[i] < totals[i] for i in (0, 1))]
    data = DataConfig(split="speaker", eval_ratio=ratio, split_seed=seed)
    try:
        found = n_by_label(divide(scenarios, data, Path())[1], scenarios)
    except DataError:
        best = min(possible, key=lambda found: (off(found), abs(sum(found) - size)), default=None)
        assert best is None or abs(sum(best) - size) > min(size, n - size) / 2
    else:
        assert off(found) == min(map(off, possible))


@pytest.mark.parametrize("kind", ["stratified", "scene", "speaker"])
def test_another_seed_holds_out_others(kind: str) -> None:
    scenarios = {
        f"1_{i}": {"utterance": f"line number {i // 2}", "context": [], "speaker": f"S{i // 3}",
                   "sarcasm": i % 2 == 0}
        for i in range(120)
    }  # fmt: skip
    halves = {
        frozenset(divide(scenarios, DataConfig(split=kind, split_seed=seed), Path())[1])
        for seed in range(5)
    }
    assert len(halves) == 5


def test_a_rare_label_is_on_both_sides_of_a_large_corpus() -> None:
    scenarios = {f"1_{i}": {"sarcasm": i % 150 == 0, "speaker": "S"} for i in range(3000)}
    train, held_out = divide(scenarios, DataConfig(split="stratified"), Path())
    assert n_by_label(held_out, scenarios) == (4, 596)
    assert n_by_label(train, scenarios) == (16, 2384)


def test_many_large_speakers_are_divided_quickly_and_near_the_ratio() -> None:
    scenarios = {
        f"1_{i}": {"sarcasm": i % 3 == 0, "speaker": f"S{i % 997 % 641}"} for i in range(10_000)
    }
    started = time.monotonic()
    _, held_out = divide(scenarios, DataConfig(split="speaker"), Path())
    assert time.monotonic() - started < 10
    assert abs(len(held_out) - 2000) <= 2


def clips_of(*rows: tuple[str, str, bool]) -> dict[str, dict[str, Any]]:
    return {
        f"1_{i}": {"speaker": speaker, "show": show, "sarcasm": sarcasm,
                   "utterance": f"word number {i} of {speaker}", "context": []}
        for i, (speaker, show, sarcasm) in enumerate(rows)
    }  # fmt: skip


ONE_SPEAKER = clips_of(*[("A", "X", i % 2 == 0) for i in range(20)])
TWO_SHOWS = clips_of(*[("AB"[i % 4 // 2], "XY"[i % 4 // 2], i % 2 == 0) for i in range(20)])
ONE_LABEL = clips_of(*[("AB"[i % 2], "X", True) for i in range(20)])
ONE_SARCASTIC = clips_of(*[(f"S{i}", "X", i == 7) for i in range(300)])
ONE_SCENE = {
    key: {**clip, "context": ["nearly all clips share this"] if i else []}
    for i, (key, clip) in enumerate(TWO_SHOWS.items())
}

IMPOSSIBLE = [
    pytest.param(ONE_SPEAKER, {"split": "speaker"}, "data.split", "are one speaker", id="speaker"),
    pytest.param(TWO_SHOWS, {"split": "speaker"}, "data.eval_ratio", "is 10", id="halves"),
    pytest.param(ONE_SCENE, {"split": "scene"}, "data.eval_ratio", "holds 19", id="one-scene"),
    pytest.param(ONE_LABEL, {"split": "stratified"}, "sarcasm", "nothing to tell", id="label"),
    pytest.param(
        ONE_SARCASTIC, {"split": "speaker"}, "data.eval_ratio", "the nearest is none",
        id="one-sarcastic-clip",
    ),
    pytest.param(TWO_SHOWS, {"split": "show"}, "data.test_shows", "no show of this", id="unknown"),
    pytest.param(
        TWO_SHOWS, {"split": "show", "test_shows": ("X", "Y")}, "data.test_shows", "all shows",
        id="all-shows",
    ),
    pytest.param(
        TWO_SHOWS, {"split": "official", "fold": 0}, "official_folds.json", "not there", id="folds"
    ),
    pytest.param(
        TWO_SHOWS, {"split": "stratified", "eval_ratio": 0.05}, "data.eval_ratio", "too few",
        id="one-clip",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("scenarios", "data", "field", "said"), IMPOSSIBLE)
def test_what_can_not_be_divided_so_is_refused(
    scenarios: dict[str, dict[str, Any]],
    data: dict[str, Any],
    field: str,
    said: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match=said) as caught:
        divide(scenarios, DataConfig(**data), tmp_path)
    (problem,) = caught.value.problems
    assert problem.field == field
    assert problem.remedy


def test_shows_are_held_out_whole() -> None:
    train, held_out = divide(TWO_SHOWS, DataConfig(split="show", test_shows=("Y",)), Path())
    assert {TWO_SHOWS[clip_id]["show"] for clip_id in train} == {"X"}
    assert {TWO_SHOWS[clip_id]["show"] for clip_id in held_out} == {"Y"}


REAL = [
    pytest.param({}, 552, 138, 68, id="the-seeds"),
    pytest.param({"split": "stratified"}, 552, 138, 69, id="stratified"),
    pytest.param({"split": "scene"}, 552, 138, 69, id="scene"),
    pytest.param({"split": "speaker"}, 552, 138, 69, id="speaker"),
    pytest.param({"split": "show"}, 334, 356, 152, id="friends-held-out"),
    pytest.param({"split": "official", "fold": 0}, 552, 138, 74, id="fold-0"),
    pytest.param({"split": "official", "fold": 4}, 552, 138, 61, id="fold-4"),
]


@pytest.mark.skipif(not SHARED.is_dir(), reason="MUStARD is not beside the checkout")
@pytest.mark.parametrize(("data", "n_train", "n_held_out", "n_sarcastic"), REAL)
def test_sizes_on_the_real_clips(
    data: dict[str, Any], n_train: int, n_held_out: int, n_sarcastic: int
) -> None:
    root = SHARED / "mustard"
    scenarios = json.loads((root / "sarcasm_data.json").read_text())
    train, held_out = divide(scenarios, DataConfig(**data), root)
    assert (len(train), len(held_out)) == (n_train, n_held_out)
    assert n_by_label(held_out, scenarios)[0] == n_sarcastic
    crossing = list(pairs_across(scenarios, held_out))
    assert (not crossing) == (data.get("split") == "scene")
