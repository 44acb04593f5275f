"""What a finite number of clips can say: intervals, paired comparisons, power.

Proportions get Wilson's interval, which assumes independent clips. Everything else gets a bootstrap
that resamples whole scenes, because clips of one scene are alike. Two policies are compared on the
same clips: the exact McNemar test, and the interval of the difference. A difference counts where
both agree, since each alone fails somewhere: the test takes clips as independent, and the bootstrap
is too sure of itself where few clips differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from subtext.errors import EvaluationError, Problem

Floats = npt.NDArray[np.float64]

N_RESAMPLES = 10_000
ALPHA = 0.05
POWER = 0.8
DISCORDANT_AT_NO_GAIN = 0.15
"""Share of clips that one of two equally good policies alone has right, as `smallest_gain` takes
it: 20 / 25 / 30 / 35 % of the clips are discordant at a true gain of 5 / 10 / 15 / 20 points."""

BETTER, WORSE, NOT_DISTINGUISHABLE = "better", "worse", "not distinguishable"


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """Return the 95 % score interval (low, high) of a proportion, 0 <= low <= p <= high <= 1.

    statsmodels' `proportion_confint`; source: E. B. Wilson (1927), JASA 22(158), 209-212. It
    assumes independent clips, which clips of one scene are not quite. Raises EvaluationError
    unless 0 <= successes <= n and n >= 1.
    """
    if n < 1 or not 0 <= successes <= n:
        raise _refused(
            "successes, n", (successes, n), "is no proportion",
            "Give counts with 0 <= successes <= n and n >= 1.",
        )  # fmt: skip
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(successes, n, method="wilson")
    p = successes / n
    # At p = 0 and 1 the exact bound is p itself; rounding must not move it past p.
    return min(p, max(0.0, float(low))), max(p, min(1.0, float(high)))


@dataclass(frozen=True)
class Resamples:
    """Bootstrap samples of items, drawn as whole clusters with replacement, shared by every figure.

    `counts` [n_resamples, n_clusters]: how often each cluster was drawn, as many draws as there
    are clusters. `cluster_of` [n_items]: the column an item belongs to. Fewer than two clusters
    cannot be resampled: then there is no resample, and `interval` finds none.
    """

    counts: Floats
    cluster_of: npt.NDArray[np.intp]

    @classmethod
    def of(
        cls, clusters: Sequence[str], n_resamples: int = N_RESAMPLES, seed: int = 0
    ) -> Resamples:
        """Draw from items whose clusters are `clusters`, one name an item. The same names in
        another order give the same samples."""
        names, cluster_of = np.unique(np.array(clusters, dtype=str), return_inverse=True)
        return cls(_drawn(len(names), n_resamples, seed), cluster_of)

    def sums(self, values: npt.ArrayLike) -> Floats:
        """Return the sum of `values` [n_items] or [n_items, k] in each resample."""
        return self.counts @ self._by_cluster(np.asarray(values, float))

    def mean(self, values: npt.ArrayLike) -> Floats:
        """Return the mean of `values` [n_items] in each resample. An item counts as often as its
        cluster was drawn."""
        items = np.asarray(values, float)
        return self.sums(items) / self.sums(np.ones(len(items)))

    def pair_sums(self, values: npt.ArrayLike) -> Floats:
        """Return the sum of `values` [n_items, n_items] over all pairs of items, in each resample.
        A pair counts as often as its first item times its second."""
        rows = self._by_cluster(np.asarray(values, float))
        by_pair = self._by_cluster(rows.T).T
        total: Floats = np.einsum("rc,rc->r", self.counts @ by_pair, self.counts)
        return total

    def interval(self, samples: Floats) -> list[float] | None:
        """Return the `interval` of a figure from its `samples`, one a resample."""
        return interval(samples, self.counts.shape[1])

    def _by_cluster(self, values: Floats) -> Floats:
        """Add the rows of `values` [n_items, ...] up by cluster."""
        summed = np.zeros((self.counts.shape[1], *values.shape[1:]))
        np.add.at(summed, self.cluster_of, values)
        return summed


def interval(samples: Floats, n_clusters: float = math.inf) -> list[float] | None:
    """Return the 95 % interval [low, high] of a figure from its bootstrap `samples`.

    NaN marks a sample in which the figure is undefined, and is left out; None where nothing is
    left. Percentiles further out than 2.5 and 97.5 make up for few clusters: as far as a t
    interval with the samples' own spread would lie beyond the normal one. Source: T. Hesterberg
    (2015), What teachers should know about the bootstrap, The American Statistician 69(4),
    371-386, "expanded percentile interval".
    """
    defined = samples[np.isfinite(samples)]
    if not defined.size:
        return None
    from scipy.stats import norm, t

    tail = norm.cdf(t.ppf(ALPHA / 2, n_clusters - 1) / math.sqrt(1 - 1 / n_clusters))
    low, high = np.quantile(defined, [tail, 1 - tail])
    return [float(low), float(high)]


def mcnemar_p(n_only_ours: int, n_only_theirs: int) -> float:
    """Return the exact two-sided p-value of McNemar's test: of the clips that one side alone has
    right, each side's share is one half under the null. 1.0 where there is no such clip."""
    from scipy.stats import binomtest

    n_discordant = n_only_ours + n_only_theirs
    return float(binomtest(n_only_ours, n_discordant).pvalue) if n_discordant else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order of `p_values`: each compared with alpha, they
    keep the chance of any false alarm in the family at alpha."""
    if not p_values:
        return []
    from statsmodels.stats.multitest import multipletests

    return [float(p) for p in multipletests(p_values, method="holm")[1]]


def compare(
    ours: Mapping[str, bool], theirs: Mapping[str, bool], scenes: Mapping[str, str]
) -> dict[str, Any]:
    """Compare who is right (`ours`, `theirs`: clip id -> right) on the same clips.

    Returns `n`, `accuracy`, `accuracy_against`, `difference` (ours - theirs), its 95 % `interval`
    `[low, high]`, `n_only_ours` and `n_only_theirs` (clips one side alone has right) and McNemar's
    `p_value`. The interval resamples `scenes` (clip id -> scene). Where that can show nothing it is
    wide instead: -1..1 where all clips are of one scene, and where no clip differs the Wilson bound
    of no success in as many trials as there are scenes, on both sides.

    Raises EvaluationError for no clip, clips that one side alone judged, or one without a scene.
    """
    clip_ids = _shared_ids(ours, theirs, scenes)
    n = len(clip_ids)
    differences = np.array([int(ours[clip_id]) - int(theirs[clip_id]) for clip_id in clip_ids])
    n_only_ours, n_only_theirs = int((differences > 0).sum()), int((differences < 0).sum())
    return {
        "n": n,
        "accuracy": sum(map(bool, ours.values())) / n,
        "accuracy_against": sum(map(bool, theirs.values())) / n,
        "difference": (n_only_ours - n_only_theirs) / n,
        "interval": _difference_interval(differences, [scenes[clip_id] for clip_id in clip_ids]),
        "n_only_ours": n_only_ours,
        "n_only_theirs": n_only_theirs,
        "p_value": mcnemar_p(n_only_ours, n_only_theirs),
    }


def judged_family(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return `rows` (from `compare`, whatever else they hold) with `p_holm` and a `verdict`.

    The rows are the whole planned family, and `p_holm` is adjusted over it. "better" only where
    p_holm < 0.05 and the interval lies above 0, "worse" mirrored, else "not distinguishable".
    """
    adjusted = holm([row["p_value"] for row in rows])
    return [
        {**row, "p_holm": p, "verdict": _verdict(p, row["interval"])}
        for row, p in zip(rows, adjusted, strict=True)
    ]


def mcnemar_power(n: int, gain: float, discordant_share: float) -> float:
    """Return the chance that the exact McNemar test on `n` clips finds p < `ALPHA`.

    `gain` is the true difference in accuracy, 0..1, `discordant_share` the chance that one side
    alone is right, of which (1 + gain / share) / 2 falls to the better side. Exact, over every
    number of discordant clips; n >= 1 and gain <= discordant_share <= 1.
    """
    from scipy.stats import binom

    discordant = np.arange(n + 1)
    weight = binom.pmf(discordant, n, discordant_share)
    # Significant is: at most `critical` of the discordant clips on the worse side.
    critical = binom.ppf(ALPHA / 2, discordant, 0.5)
    critical -= 2 * binom.cdf(critical, discordant, 0.5) >= ALPHA
    share = (1 + gain / discordant_share) / 2 if discordant_share else 0.5
    low = binom.cdf(critical, discordant, share)
    high = binom.sf(discordant - critical - 1, discordant, share)
    return float(weight @ (low + high))


def smallest_gain(n: int) -> float | None:
    """Return the smallest true gain in accuracy, in steps of 0.01, that the exact McNemar test on
    `n` clips finds with a chance of `POWER`, where `DISCORDANT_AT_NO_GAIN` + gain of the clips are
    discordant. None where no gain that this assumption allows reaches it."""
    for points in range(1, round(100 * (1 - DISCORDANT_AT_NO_GAIN)) + 1):
        gain = points / 100
        if mcnemar_power(n, gain, DISCORDANT_AT_NO_GAIN + gain) >= POWER:
            return gain
    return None


@lru_cache(maxsize=4)
def _drawn(n_clusters: int, n_resamples: int, seed: int) -> Floats:
    """Return how often each cluster is drawn, [n_resamples, n_clusters], read-only."""
    if n_clusters < 2:
        return np.zeros((0, n_clusters))
    drawn = np.random.default_rng(seed).integers(n_clusters, size=(n_resamples, n_clusters))
    drawn += n_clusters * np.arange(n_resamples)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=n_resamples * n_clusters)
    counts_as_floats = counts.reshape(n_resamples, n_clusters).astype(float)
    counts_as_floats.flags.writeable = False
    return counts_as_floats


def _difference_interval(differences: npt.NDArray[np.int_], clusters: Sequence[str]) -> list[float]:
    if not differences.any():
        bound = wilson_interval(0, len(set(clusters)))[1]
        return [-bound, bound]
    resamples = Resamples.of(clusters)
    return resamples.interval(resamples.mean(differences)) or [-1.0, 1.0]


def _verdict(p_holm: float, bounds: Sequence[float]) -> str:
    low, high = bounds
    if p_holm < ALPHA and low > 0:
        return BETTER
    if p_holm < ALPHA and high < 0:
        return WORSE
    return NOT_DISTINGUISHABLE


def _shared_ids(
    ours: Mapping[str, bool], theirs: Mapping[str, bool], scenes: Mapping[str, str]
) -> list[str]:
    if not ours:
        raise _refused("clips", [], "nothing to compare", "Judge at least one clip.")
    if lonely := sorted(set(ours) ^ set(theirs)):
        raise _refused(
            "clips", lonely, "judged by one side alone", "Compare passes over the same clips."
        )
    if without := sorted(set(ours) - set(scenes)):
        raise _refused("scenes", without, "clips without a scene", "Take subtext.data.scenes.")
    return sorted(ours)


def _refused(field: str, value: object, problem: str, remedy: str) -> EvaluationError:
    return EvaluationError(str(Problem("statistics", field, value, problem, remedy)))
