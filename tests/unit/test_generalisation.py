"""Where a policy is right: counted by hand, and against policies that know less than it seems."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtext import strict_json
from subtext.answer import LABELS
from subtext.evaluation.baselines import share_by
from subtext.evaluation.generalisation import (
    by_group,
    train_against_held_out,
    train_sample,
    within_speaker,
)


def record(clip_id: str, sarcastic: bool, p: float) -> dict[str, Any]:
    return {
        "clip_id": clip_id, "gold": LABELS[not sarcastic], "p_sarcastic": p,
        "correct": (p > 0.5) == sarcastic,
    }  # fmt: skip


SCENARIOS = {
    "1": {"speaker": "A", "show": "X", "sarcasm": True},
    "2": {"speaker": "A", "show": "X", "sarcasm": False},
    "3": {"speaker": "A", "show": "X", "sarcasm": False},
    "4": {"speaker": "B", "show": "X", "sarcasm": True},
    "5": {"speaker": "C", "show": "Y", "sarcasm": True},
    "6": {"speaker": "C", "show": "Y", "sarcasm": False},
}
RECORDS = [
    record("1", True, 0.8), record("2", False, 0.3), record("3", False, 0.9),
    record("4", True, 0.1), record("5", True, 0.5), record("6", False, 0.5),
]  # fmt: skip


def test_groups_counted_by_hand() -> None:
    rows = by_group(RECORDS, SCENARIOS, "speaker")
    assert [(row["name"], row["n"], row["n_sarcastic"]) for row in rows] == [
        ("A", 3, 1), ("C", 2, 1), ("B", 1, 1),
    ]  # fmt: skip
    assert [row["accuracy"] for row in rows] == [2 / 3, 0.5, 0]
    assert all(row["interval"][0] <= row["accuracy"] <= row["interval"][1] for row in rows)
    assert [row["name"] for row in by_group(RECORDS, SCENARIOS, "show")] == ["X", "Y"]
    assert rows == by_group(RECORDS[::-1], SCENARIOS, "speaker")


def test_concordance_counted_by_hand() -> None:
    # A: 1 above 2, below 3. C: a tie. B alone has no pair, and pairs of two speakers do not count.
    assert within_speaker(RECORDS, SCENARIOS) == {"concordance": 1.5 / 3, "n_pairs": 3}


def test_no_pair_no_concordance() -> None:
    assert within_speaker(RECORDS[3:5], SCENARIOS) is None


def test_knowing_who_speaks_is_worth_one_half() -> None:
    rng = random.Random(0)
    shares = {"A": 0.1, "B": 0.3, "C": 0.5, "D": 0.7, "E": 0.9}
    clips = {
        str(i): {"speaker": name, "sarcasm": rng.random() < shares[name]}
        for i, name in enumerate([*shares] * 40)
    }
    p = share_by(lambda _, clip: clip["speaker"])(clips, list(clips), list(clips))
    records = [record(key, clips[key]["sarcasm"], p[i]) for i, key in enumerate(clips)]
    assert sum(row["correct"] for row in records) / len(records) > 0.6
    found = within_speaker(records, clips)
    assert found is not None
    assert found["concordance"] == 0.5


@given(st.lists(st.tuples(st.sampled_from("AB"), st.booleans(), st.integers(0, 4)), max_size=20))
def test_concordance_mirrors_with_the_scores(rows: list[tuple[str, bool, int]]) -> None:
    clips = {str(i): {"speaker": name} for i, (name, _, _) in enumerate(rows)}
    found, mirrored = (
        within_speaker(
            [record(str(i), label, abs(turn - p / 4)) for i, (_, label, p) in enumerate(rows)],
            clips,
        )
        for turn in (0, 1)
    )
    assert (found is None) == (mirrored is None)
    if found and mirrored:
        assert found["concordance"] == pytest.approx(1 - mirrored["concordance"])


def side(prefix: str, n: int, accuracy: float) -> list[dict[str, Any]]:
    return [record(f"{prefix}{i}", True, 1.0 if i < accuracy * n else 0.0) for i in range(n)]


def own_scenes(*sides: list[dict[str, Any]]) -> dict[str, str]:
    return {row["clip_id"]: row["clip_id"] for rows in sides for row in rows}


def test_a_memorised_training_set_shows() -> None:
    train, held_out = side("t", 40, 1.0), side("h", 80, 0.5)
    found = train_against_held_out(train, held_out, own_scenes(train, held_out))
    assert (found["n"], found["accuracy"], found["difference"]) == (40, 1.0, 0.5)
    low, high = found["interval"]
    # The training side has no spread; the held-out one's standard error is 0.056.
    assert low == pytest.approx(0.5 - 0.11, abs=0.02)
    assert high == pytest.approx(0.5 + 0.11, abs=0.02)
    assert found["accuracy_interval"][1] == 1.0


def test_the_two_samples_are_drawn_independently() -> None:
    train, held_out = side("t", 80, 0.5), side("h", 80, 0.5)
    low, high = train_against_held_out(train, held_out, own_scenes(train, held_out))["interval"]
    # Each has a standard error of 0.056, the difference one of 0.079.
    assert high - low == pytest.approx(2 * 1.96 * 0.079, abs=0.02)


def test_scenes_widen_the_interval_and_a_single_one_has_none() -> None:
    train, held_out = side("t", 80, 0.5), side("h", 80, 0.5)
    tenths = {row["clip_id"]: row["clip_id"][0] + str(i // 10) for rows in (train, held_out)
              for i, row in enumerate(rows)}  # fmt: skip
    alone, together = (
        train_against_held_out(train, held_out, scenes)["interval"]
        for scenes in (own_scenes(train, held_out), tenths)
    )
    assert together[1] - together[0] > 2 * (alone[1] - alone[0])
    single = {**own_scenes(held_out), **dict.fromkeys(own_scenes(train), "one")}
    assert train_against_held_out(train, held_out, single)["interval"] is None


@given(
    labels=st.lists(st.booleans(), min_size=1, max_size=40), n=st.integers(1, 50),
    seed=st.integers(0, 5), data=st.data(),
)  # fmt: skip
def test_a_sample_keeps_the_labels_proportion_and_ignores_the_order(
    labels: list[bool], n: int, seed: int, data: st.DataObject
) -> None:
    clips = {f"c{i:02d}": {"sarcasm": label} for i, label in enumerate(labels)}
    ids = data.draw(st.permutations(list(clips)))
    sample = train_sample(clips, ids, n, seed)
    assert sample == train_sample(clips, sorted(ids), n, seed)
    assert sample == sorted(set(sample))
    assert set(sample) <= set(ids)
    assert len(sample) == min(n, len(ids))
    n_sarcastic = sum(clips[clip_id]["sarcasm"] for clip_id in sample)
    assert abs(n_sarcastic - len(sample) * sum(labels) / len(labels)) <= 0.5 + 1e-9


def test_another_seed_draws_others() -> None:
    clips = {str(i): {"sarcasm": i % 2 == 0} for i in range(100)}
    assert train_sample(clips, list(clips), 20, 0) != train_sample(clips, list(clips), 20, 1)


@given(st.lists(st.tuples(st.sampled_from("AB"), st.booleans(), st.floats(0, 1)), min_size=1))
def test_everything_is_strict_json(rows: list[tuple[str, bool, float]]) -> None:
    clips = {str(i): {"speaker": name, "show": name} for i, (name, _, _) in enumerate(rows)}
    records = [record(str(i), label, p) for i, (_, label, p) in enumerate(rows)]
    found = [by_group(records, clips, "show"), within_speaker(records, clips)]
    assert strict_json.loads(strict_json.dumps(found)) == found
