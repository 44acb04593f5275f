"""Intervals, paired tests and power: hand-computed and against scipy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from subtext.errors import EvaluationError
from subtext.evaluation.statistics import (
    BETTER,
    NOT_DISTINGUISHABLE,
    WORSE,
    Resamples,
    compare,
    holm,
    interval,
    judged_family,
    mcnemar_p,
    mcnemar_power,
    smallest_gain,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("n", "at_60", "at_70", "at_80"),
    [
        (80, (0.49, 0.70), (0.59, 0.79), (0.70, 0.87)),
        (138, (0.52, 0.68), (0.62, 0.77), (0.72, 0.86)),
        (210, (0.53, 0.66), (0.64, 0.76), (0.74, 0.85)),
        (356, (0.55, 0.65), (0.65, 0.74), (0.76, 0.84)),
        (690, (0.56, 0.64), (0.67, 0.73), (0.77, 0.83)),
    ],
)
def test_wilson_interval_table(
    n: int, at_60: tuple[float, float], at_70: tuple[float, float], at_80: tuple[float, float]
) -> None:
    for percent, expected in {60: at_60, 70: at_70, 80: at_80}.items():
        # Half a digit, and what rounding the share to whole clips moves.
        found = wilson_interval(round(n * percent / 100), n)
        assert found == pytest.approx(expected, abs=0.005 + 0.5 / n)


def test_wilson_interval_by_hand() -> None:
    # z² / n = 0.0055673 at n = 690: centre .70 -> .698893, half-width .0341153.
    assert wilson_interval(483, 690) == pytest.approx((0.664777, 0.733009), abs=1e-6)


def test_wilson_interval_at_the_ends() -> None:
    # p = 0: (0, z² / (n + z²)); p = 1 mirrors it. z² = 3.8414588.
    low, high = wilson_interval(0, 10)
    assert low == 0.0
    assert high == pytest.approx(3.8414588 / 13.8414588, abs=1e-7)
    assert wilson_interval(10, 10) == pytest.approx((1 - high, 1.0), abs=1e-12)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_holds_its_estimate_and_mirrors(counts: tuple[int, int]) -> None:
    successes, n = counts
    low, high = wilson_interval(successes, n)
    assert 0.0 <= low <= successes / n <= high <= 1.0
    assert low < high
    mirrored = wilson_interval(n - successes, n)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_wilson_interval_refuses_what_is_no_proportion(successes: int, n: int) -> None:
    with pytest.raises(EvaluationError, match="is no proportion"):
        wilson_interval(successes, n)


def test_a_resample_draws_whole_clusters_as_many_as_there_are() -> None:
    resamples = Resamples.of(["a", "b", "a", "c"], n_resamples=500)
    assert resamples.counts.shape == (500, 3)
    assert (resamples.counts.sum(axis=1) == 3).all()
    drawn_a, drawn_b, drawn_c = resamples.counts.T
    assert (resamples.sums([1, 0, 10, 0]) == 11 * drawn_a).all()
    n_items = 2 * drawn_a + drawn_b + drawn_c
    assert np.allclose(
        resamples.mean([1, 5, 3, 7]), (4 * drawn_a + 5 * drawn_b + 7 * drawn_c) / n_items
    )


def test_pairs_count_as_often_as_both_items_are_drawn() -> None:
    clusters, values = ["a", "b", "a", "c"], np.arange(16).reshape(4, 4)
    resamples = Resamples.of(clusters, n_resamples=200)
    for counts, found in zip(resamples.counts, resamples.pair_sums(values), strict=True):
        weight = counts[resamples.cluster_of]
        assert found == weight @ values @ weight


def test_each_cluster_is_drawn_once_on_average_and_independently_of_its_size() -> None:
    resamples = Resamples.of(["a"] * 9 + ["b", "c"])
    assert resamples.counts.mean(axis=0) == pytest.approx([1, 1, 1], abs=0.03)
    # Binomial(3, 1/3): variance 2/3.
    assert resamples.counts.var(axis=0) == pytest.approx([2 / 3] * 3, abs=0.03)


def test_the_order_of_items_changes_no_resample() -> None:
    forward = Resamples.of(["a", "b", "a", "c"]).mean([1, 2, 3, 4])
    backward = Resamples.of(["c", "a", "b", "a"]).mean([4, 3, 2, 1])
    assert np.allclose(forward, backward)


def test_one_cluster_cannot_be_resampled() -> None:
    resamples = Resamples.of(["a", "a"])
    assert resamples.interval(resamples.mean([0, 1])) is None


@pytest.mark.parametrize(
    ("n_clusters", "tail"),
    [
        # P(Z < -t sqrt(c / (c - 1))), t the 0.975 quantile of Student's t with c - 1 degrees.
        pytest.param(5, 0.00096, id="t-2.776-times-1.118"),
        pytest.param(20, 0.01587, id="t-2.093-times-1.026"),
        pytest.param(math.inf, 0.025, id="the-plain-percentiles"),
    ],
)
def test_interval_is_the_middle_of_what_is_defined_wider_for_few_clusters(
    n_clusters: float, tail: float
) -> None:
    samples = np.array([*range(100_001), math.nan])
    assert interval(samples, n_clusters) == pytest.approx([1e5 * tail, 1e5 * (1 - tail)], abs=2)
    assert interval(np.array([math.nan]), n_clusters) is None


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_exact_binomial_test(ours: int, theirs: int) -> None:
    n = ours + theirs
    tail = sum(math.comb(n, k) for k in range(min(ours, theirs) + 1)) / 2**n
    assert mcnemar_p(ours, theirs) == pytest.approx(min(1.0, 2 * tail), rel=1e-9)
    assert mcnemar_p(ours, theirs) == mcnemar_p(theirs, ours)
    assert mcnemar_p(ours, theirs) == (binomtest(ours, n).pvalue if n else 1.0)


def test_twenty_discordant_clips_need_fifteen_to_five() -> None:
    assert mcnemar_p(15, 5) < 0.05 < mcnemar_p(14, 6)


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    [
        pytest.param([], [], id="no-comparison"),
        pytest.param([0.04], [0.04], id="one"),
        pytest.param([0.01, 0.04, 0.03], [0.03, 0.06, 0.06], id="a-later-one-is-never-smaller"),
        pytest.param([0.5, 0.02, 0.02], [0.5, 0.06, 0.06], id="tied"),
        pytest.param([0.9, 0.8], [1.0, 1.0], id="never-above-1"),
    ],
)
def test_holm_by_hand(p_values: list[float], adjusted: list[float]) -> None:
    assert holm(p_values) == pytest.approx(adjusted)


@pytest.mark.parametrize(
    ("n", "percent"),
    [
        (80, [11, 35, 64, 84]),
        (138, [19, 61, 89, 98]),
        (210, [31, 81, 98, 100]),
        (356, [51, 96, 100, 100]),
        (690, [82, 100, 100, 100]),
    ],
)
def test_power_table(n: int, percent: list[int]) -> None:
    gains = (0.05, 0.10, 0.15, 0.20)
    found = [100 * mcnemar_power(n, gain, 0.15 + gain) for gain in gains]
    assert found == pytest.approx(percent, abs=1.5)


def test_power_is_what_simulation_finds() -> None:
    rng = np.random.default_rng(0)
    # 80 clips, gain 0.15 with 0.30 discordant: 0.225 only ours, 0.075 only theirs.
    tables = rng.multinomial(80, [0.225, 0.075, 0.7], size=4000)
    found = np.mean([mcnemar_p(int(ours), int(theirs)) < 0.05 for ours, theirs, _ in tables])
    assert mcnemar_power(80, 0.15, 0.30) == pytest.approx(found, abs=0.025)


def test_without_a_gain_power_is_the_false_alarm_rate() -> None:
    rates = [mcnemar_power(n, 0.0, share) for n in (1, 10, 80, 690) for share in (0, 0.05, 0.3, 1)]
    assert max(rates) <= 0.05
    assert max(rates) > 0.03


@pytest.mark.parametrize("n", [10, 71, 690])
def test_smallest_gain_is_where_power_reaches_80_percent(n: int) -> None:
    gain = smallest_gain(n)
    assert gain is not None
    assert mcnemar_power(n, gain, 0.15 + gain) >= 0.8
    assert mcnemar_power(n, gain - 0.01, 0.14 + gain) < 0.8


def test_five_clips_find_no_gain_at_all() -> None:
    # All five discordant and on one side: p = 2 / 2**5 = 0.0625.
    assert smallest_gain(5) is None


def judged(right: Sequence[int]) -> dict[str, bool]:
    return {f"c{index:03}": bool(hit) for index, hit in enumerate(right)}


def own_scenes(n: int) -> dict[str, str]:
    return {clip_id: clip_id for clip_id in judged([0] * n)}


def test_compare_by_hand() -> None:
    row = compare(judged([1, 1, 1, 0, 1]), judged([1, 0, 0, 1, 0]), own_scenes(5))
    low, high = row.pop("interval")
    assert row == {
        "n": 5,
        "accuracy": 0.8,
        "accuracy_against": 0.4,
        "difference": pytest.approx(0.4),
        "n_only_ours": 3,
        "n_only_theirs": 1,
        "p_value": pytest.approx(0.625),  # 2 (1 + 4) / 16
    }
    assert -1 <= low < 0.4 < high <= 1


def test_compare_mirrors() -> None:
    ours, theirs = judged([1, 1, 0, 1] * 20), judged([1, 0, 0, 0, 1] * 16)
    row = compare(ours, theirs, own_scenes(80))
    mirrored = compare(theirs, ours, own_scenes(80))
    assert mirrored["difference"] == -row["difference"]
    assert mirrored["p_value"] == row["p_value"]
    assert mirrored["interval"] == pytest.approx([-bound for bound in reversed(row["interval"])])


def test_clips_of_one_scene_count_as_one_in_the_interval() -> None:
    ours, theirs = judged([1, 1, 1, 1, 0, 0, 0, 0] * 5), judged([0] * 40)
    scenes = {clip_id: f"s{index // 4}" for index, clip_id in enumerate(ours)}
    apart, together = compare(ours, theirs, own_scenes(40)), compare(ours, theirs, scenes)
    widths = [high - low for low, high in (apart["interval"], together["interval"])]
    assert widths[1] > 1.7 * widths[0]  # about sqrt(4)


@pytest.mark.parametrize(
    ("ours", "scenes", "bounds"),
    [
        pytest.param([1, 1, 0], ["a", "a", "a"], [-1, 1], id="one-scene"),
        # z² / (n + z²) for n = 3 and n = 1 scenes.
        pytest.param([0, 1, 0], ["a", "b", "c"], [-0.561497, 0.561497], id="no-clip-differs"),
        pytest.param([0, 1, 0], ["a", "a", "a"], [-0.793450, 0.793450], id="neither"),
    ],
)
def test_where_resampling_shows_nothing_the_interval_is_wide(
    ours: list[int], scenes: list[str], bounds: list[float]
) -> None:
    row = compare(judged(ours), judged([0, 1, 0]), dict(zip(judged(ours), scenes, strict=True)))
    assert row["interval"] == pytest.approx(bounds, abs=1e-6)
    assert judged_family([row])[0]["verdict"] == NOT_DISTINGUISHABLE


@pytest.mark.parametrize(
    ("ours", "theirs", "scenes", "message"),
    [
        pytest.param({}, {}, {}, "nothing to compare", id="no-clip"),
        pytest.param({"a": True}, {"b": True}, {"a": "s", "b": "s"}, "one side", id="other-clips"),
        pytest.param({"a": True}, {"a": True}, {}, "'a'.*without a scene", id="no-scene"),
    ],
)
def test_compare_refuses(
    ours: dict[str, bool], theirs: dict[str, bool], scenes: dict[str, str], message: str
) -> None:
    with pytest.raises(EvaluationError, match=message):
        compare(ours, theirs, scenes)


def test_few_discordant_clips_do_not_convince() -> None:
    # 4 to 0 on 80 clips: the interval excludes 0, the exact test has p = 2 / 2**4.
    row = compare(judged([1] * 4 + [0] * 76), judged([0] * 80), own_scenes(80))
    assert row["interval"][0] > 0
    assert row["p_value"] == pytest.approx(0.125)
    assert judged_family([row])[0]["verdict"] == NOT_DISTINGUISHABLE


def test_alike_scenes_do_not_convince_either() -> None:
    # 24 clips differ, but all of them in 2 scenes of 10: the exact test is sure, wrongly.
    ours, theirs = judged([1] * 24 + [0] * 96), judged([0] * 120)
    scenes = {clip_id: f"s{index // 12}" for index, clip_id in enumerate(ours)}
    row = compare(ours, theirs, scenes)
    assert row["p_value"] < 1e-6
    assert row["interval"][0] == 0
    assert judged_family([row])[0]["verdict"] == NOT_DISTINGUISHABLE


def test_verdicts_of_a_family() -> None:
    none, much = judged([0] * 80), judged([1] * 20 + [0] * 60)
    some = judged([1] * 6 + [0] * 74)
    rows = [compare(*pair, own_scenes(80)) for pair in [(much, none), (none, much), (some, none)]]
    assert rows[2]["p_value"] == pytest.approx(2 / 2**6)
    assert [row["verdict"] for row in judged_family(rows)] == [BETTER, WORSE, BETTER]
    # Beside three more comparisons that show nothing, 0.03125 is no longer small: Holm.
    family = judged_family(
        [{"name": "some", **rows[2]}, *[compare(none, none, own_scenes(80))] * 3]
    )
    assert family[0]["name"] == "some"
    assert family[0]["p_holm"] == pytest.approx(4 * 2 / 2**6)
    assert {row["verdict"] for row in family} == {NOT_DISTINGUISHABLE}
