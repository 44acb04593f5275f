"""What confidences are worth: by hand, against scikit-learn, by brute force and by simulation."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from subtext.answer import SARCASTIC, SINCERE
from subtext.evaluation.confidence import (
    auroc,
    auroc_samples,
    calibration,
    confidence_figures,
    selective_accuracy,
)
from subtext.evaluation.statistics import Resamples, wilson_interval

ROUND = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]


def record(gold: str, predicted: str | None, confidence: float) -> dict[str, Any]:
    of_sarcastic = {SARCASTIC: confidence, SINCERE: round(1 - confidence, 12), None: 0.5}
    return {
        "gold": gold,
        "confidence": confidence,
        "p_sarcastic": of_sarcastic[predicted],
        "correct": predicted == gold,
        "well_formed": predicted is not None,
    }


def figures(records: list[dict[str, Any]]) -> dict[str, Any]:
    return confidence_figures(records, Resamples.of([f"c{i:03}" for i in range(len(records))]))


def columns(pairs: list[tuple[float, bool]]) -> tuple[Any, Any]:
    values, flags = zip(*pairs, strict=True)
    return np.array(values, float), np.array(flags, bool)


def test_scores_by_hand() -> None:
    found = figures(
        [
            record(SARCASTIC, SARCASTIC, 0.9),
            record(SINCERE, SINCERE, 0.8),
            record(SINCERE, SARCASTIC, 0.6),
            record(SARCASTIC, None, 0.5),
        ]
    )
    brier = (0.1**2 + 0.2**2 + 0.6**2 + 0.5**2) / 4
    assert found["brier"] == pytest.approx(brier)
    assert found["brier_skill"] == pytest.approx(1 - brier / 0.25)
    assert found["log_loss"] == pytest.approx(-math.log(0.9 * 0.8 * 0.4 * 0.5) / 4)
    # p of the sarcastic: .9, .5; of the sincere: .2, .6. Three of four pairs in order.
    assert found["auroc"] == 0.75
    assert found["auroc_confidence"] == 1.0
    assert found["n_distinct_confidences"] == 3
    assert found["risk_coverage"] == [
        [0.25, 1.0],
        [0.5, 1.0],
        [0.75, pytest.approx(2 / 3)],
        [1, 0.5],
    ]
    assert found["aurc"] == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)
    assert (found["accuracy_at_50"], found["accuracy_at_80"]) == (1.0, 0.5)


@given(st.lists(st.tuples(st.sampled_from(ROUND), st.booleans()), min_size=2, max_size=30))
@settings(deadline=None, max_examples=30)
def test_scores_are_scikit_learns(pairs: list[tuple[float, bool]]) -> None:
    p, sarcastic = columns(pairs)
    found = figures([record([SINCERE, SARCASTIC][y], SARCASTIC, q) for q, y in pairs])
    assert found["brier"] == pytest.approx(brier_score_loss(sarcastic, p, labels=[False, True]))
    clipped = np.clip(p, 0.01, 0.99)
    assert found["log_loss"] == pytest.approx(log_loss(sarcastic, clipped, labels=[False, True]))
    one_label = len(set(sarcastic)) == 1
    assert found["auroc"] == (None if one_label else pytest.approx(roc_auc_score(sarcastic, p)))


def test_one_sure_mistake_is_bounded() -> None:
    assert figures([record(SINCERE, SARCASTIC, 1.0)])["log_loss"] == pytest.approx(-math.log(0.01))


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1))
def test_auroc_is_the_share_of_pairs_in_order(rows: list[tuple[int, bool]]) -> None:
    high = [score for score, label in rows if label]
    low = [score for score, label in rows if not label]
    won = sum((one > other) + 0.5 * (one == other) for one in high for other in low)
    expected = pytest.approx(won / (len(high) * len(low))) if high and low else None
    assert auroc([score for score, _ in rows], [label for _, label in rows]) == expected


def test_auroc_of_a_resample_is_scikit_learns_of_the_drawn_clips() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 4, 9) / 4, rng.random(9) < 0.4
    resamples = Resamples.of([f"s{index // 2}" for index in range(9)], n_resamples=300)
    undefined = 0
    for counts, found in zip(
        resamples.counts, auroc_samples(scores, labels, resamples), strict=True
    ):
        drawn = np.repeat(np.arange(9), counts[resamples.cluster_of].astype(int))
        if len(set(labels[drawn])) < 2:
            assert math.isnan(found)
            undefined += 1
        else:
            assert found == pytest.approx(roc_auc_score(labels[drawn], scores[drawn]))
    assert 0 < undefined < 100


def test_auroc_intervals_cover() -> None:
    rng = np.random.default_rng(3)
    resamples = Resamples.of([f"c{index:02}" for index in range(60)], n_resamples=2000)
    covered = []
    for _ in range(300):
        labels = rng.random(60) < 0.5
        scores = rng.normal(size=60) + 0.7416 * labels  # Phi(0.7416 / sqrt(2)) = 0.7
        bounds = resamples.interval(auroc_samples(scores, labels, resamples))
        covered.append(bounds is not None and bounds[0] <= 0.7 <= bounds[1])
    assert 0.92 <= np.mean(covered) <= 0.985


def test_reliability_and_ece_by_hand() -> None:
    # Ten clips, five bins of two.
    confidence = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    right = np.array([0, 0, 0, 1, 1, 0, 1, 1, 1, 1], bool)
    found = calibration(confidence, right)
    assert [row["n"] for row in found["reliability"]] == [2] * 5
    assert [row["confidence"] for row in found["reliability"]] == pytest.approx(
        [0.15, 0.35, 0.55, 0.75, 0.95]
    )
    assert [row["accuracy"] for row in found["reliability"]] == [0, 0.5, 0.5, 1, 1]
    assert found["reliability"][1]["interval"] == list(wilson_interval(1, 2))
    assert found["ece"] == pytest.approx((0.15 + 0.15 + 0.05 + 0.25 + 0.05) / 5)


@pytest.mark.parametrize(("n", "sizes"), [(199, {39, 40}), (200, {20}), (690, {69})])
def test_five_bins_below_200_clips_else_ten(n: int, sizes: set[int]) -> None:
    found = calibration(np.linspace(0.5, 1, n), np.ones(n, bool))
    assert len(found["reliability"]) == (5 if n < 200 else 10)
    assert {row["n"] for row in found["reliability"]} == sizes


@given(st.lists(st.tuples(st.sampled_from(ROUND), st.booleans()), min_size=1, max_size=60))
@settings(deadline=None, max_examples=50)
def test_equal_confidences_are_never_split(pairs: list[tuple[float, bool]]) -> None:
    confidence, right = columns(pairs)
    found = calibration(confidence, right)
    rows = found["reliability"]
    assert len(rows) <= 5
    assert sum(row["n"] for row in rows) == len(pairs)
    # A bin ends where a value does, so the sizes add up to whole groups of equal values.
    ends = np.cumsum([row["n"] for row in rows])
    group_ends = np.cumsum([np.sum(confidence == value) for value in sorted(set(confidence))])
    assert set(ends) <= set(group_ends)
    gaps = [row["n"] * abs(row["accuracy"] - row["confidence"]) for row in rows]
    assert found["ece"] == pytest.approx(sum(gaps) / len(pairs))


@pytest.mark.parametrize(("n", "mean", "percentile_95"), [(80, 0.079, 0.128), (138, 0.059, 0.096)])
def test_ece_that_a_perfect_judge_would_show(n: int, mean: float, percentile_95: float) -> None:
    # Confidences uniform on 0.5..1; the figures come from another simulation.
    found = calibration(np.linspace(0.5, 1, n), np.ones(n, bool))
    assert found["ece_null_mean"] == pytest.approx(mean, abs=0.002)
    assert found["ece_null_95"] == pytest.approx(percentile_95, abs=0.003)


def test_ece_null_by_hand() -> None:
    # One bin of one clip at 0.75: |right - 0.75| is 0.25 three times in four, else 0.75.
    found = calibration(np.array([0.75]), np.array([True]))
    assert found["ece"] == 0.25
    assert found["ece_null_mean"] == pytest.approx(0.375, abs=0.01)
    assert found["ece_null_95"] == 0.75


@given(st.lists(st.tuples(st.sampled_from(ROUND), st.booleans()), min_size=1, max_size=6))
@settings(deadline=None, max_examples=60)
def test_risk_coverage_is_the_mean_over_all_orders_of_ties(pairs: list[tuple[float, bool]]) -> None:
    n = len(pairs)
    orders = [
        order
        for order in itertools.permutations(pairs)
        if all(one[0] >= other[0] for one, other in itertools.pairwise(order))
    ]
    curves = [[sum(hit for _, hit in order[:k]) / k for k in range(1, n + 1)] for order in orders]
    expected = np.mean(curves, axis=0)
    found = selective_accuracy(*columns(pairs))
    assert [k for k, _ in found["risk_coverage"]] == [k / n for k in range(1, n + 1)]
    assert [accuracy for _, accuracy in found["risk_coverage"]] == pytest.approx(list(expected))
    assert found["aurc"] == pytest.approx(1 - expected.mean())
    assert found["accuracy_at_50"] == pytest.approx(expected[math.ceil(n / 2) - 1])


def test_the_curve_has_at_most_100_points_and_ends_with_all_clips() -> None:
    rng = np.random.default_rng(0)
    confidence, right = rng.random(690), rng.random(690) < 0.7
    curve = selective_accuracy(confidence, right)["risk_coverage"]
    assert len(curve) == 100
    assert curve[0][0] == 7 / 690
    assert curve[-1] == [1.0, pytest.approx(right.mean())]


def test_confidence_that_knows_is_worth_more_than_a_constant() -> None:
    right = np.array([True] * 70 + [False] * 30)
    knowing = selective_accuracy(np.linspace(1, 0.5, 100), right)
    constant = selective_accuracy(np.full(100, 0.9), right)
    assert (knowing["accuracy_at_50"], knowing["accuracy_at_80"]) == (1.0, 0.875)
    assert constant["accuracy_at_50"] == pytest.approx(0.7)
    assert constant["aurc"] == pytest.approx(0.3)
    assert knowing["aurc"] < 0.1


def test_a_constant_policy_is_exposed() -> None:
    records = [record(gold, SARCASTIC, 0.9) for gold in [SARCASTIC, SINCERE] * 40]
    found = figures(records)
    assert (found["auroc"], found["auroc_confidence"]) == (0.5, 0.5)
    assert found["auroc_interval"] == [0.5, 0.5]
    assert found["n_distinct_confidences"] == 1
    assert found["brier_skill"] < 0
    assert len(found["reliability"]) == 1
    assert found["ece"] == pytest.approx(0.4)
    assert found["ece"] > found["ece_null_95"]
