"""Whether stated confidences mean something: how far off, in what order, and how they add up.

`p_sarcastic` is judged against the gold label, `confidence` against being right. A malformed answer
is wrong, with 0.5 for both. Nothing depends on the order of the clips: equal confidences are never
told apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from subtext.answer import SARCASTIC
from subtext.evaluation.statistics import Floats, Resamples, wilson_interval

BRIER_OF_HALF = 0.25
"""What p = 0.5 for every clip scores: the skill's zero."""

LOG_LOSS_CLIP = 0.01
"""Probabilities are clipped to 0.01..0.99 before the log, or one sure mistake is all it shows."""

_FEW_CLIPS, _FEW_BINS, _BINS = 200, 5, 10
_N_NULL = 10_000
_CURVE_POINTS = 100

Flags = npt.NDArray[np.bool_]


def confidence_figures(
    records: Sequence[Mapping[str, Any]], resamples: Resamples
) -> dict[str, Any]:
    """Return the figures of `records`, whose scenes `resamples` draws, in the same order.

    - `brier`, its `brier_interval` (None for a single scene), `brier_skill` (1 - brier / 0.25),
      `log_loss` (natural, clipped at `LOG_LOSS_CLIP`): of p_sarcastic, lower is better but skill.
    - `auroc`, `auroc_interval`: p_sarcastic ranks sarcastic above sincere. None with one label.
    - `auroc_confidence`: confidence ranks right above wrong. None where all or none are right.
    - `ece`, `ece_null_mean`, `ece_null_95`, `reliability`: see `calibration`.
    - `n_distinct_confidences`: how many values well-formed answers state.
    - `risk_coverage`, `aurc`, `accuracy_at_50`, `accuracy_at_80`: see `selective_accuracy`.
    """
    p = np.array([record["p_sarcastic"] for record in records], float)
    sarcastic = np.array([record["gold"] == SARCASTIC for record in records])
    confidence = np.array([record["confidence"] for record in records], float)
    right = np.array([record["correct"] for record in records])
    return {
        **_probability_scores(p, sarcastic, resamples),
        "auroc": auroc(p, sarcastic),
        "auroc_interval": resamples.interval(auroc_samples(p, sarcastic, resamples)),
        "auroc_confidence": auroc(confidence, right),
        **calibration(confidence, right),
        "n_distinct_confidences": len(
            {record["confidence"] for record in records if record["well_formed"]}
        ),
        **selective_accuracy(confidence, right),
    }


def auroc(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float | None:
    """Return the share of (true, false) pairs in which the true one scores higher, a tie counting
    half: the Mann-Whitney form of the area under the ROC curve. None where one label is missing."""
    if len(np.unique(labels)) < 2:
        return None
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, scores))


def auroc_samples(scores: Floats, labels: Flags, resamples: Resamples) -> Floats:
    """Return `auroc` in each resample, NaN where that has one label only."""
    higher = (scores[:, None] > scores) + 0.5 * (scores[:, None] == scores)
    pairs = labels[:, None] & ~labels
    n_pairs = resamples.sums(labels) * resamples.sums(~labels)
    n_won = resamples.pair_sums(higher * pairs)
    return np.divide(n_won, n_pairs, out=np.full_like(n_won, np.nan), where=n_pairs > 0)


def calibration(confidence: Floats, right: Flags) -> dict[str, Any]:
    """Return the reliability table and the expected calibration error.

    `reliability`: bins of about equally many clips (5 below 200 clips, else 10; a confidence lies
    in the bin of its middle rank, so fewer bins where many are equal), in rising confidence: `n`,
    mean `confidence`, `accuracy` and its Wilson `interval`. `ece`: the mean over clips of
    |accuracy - confidence| of the clip's bin.

    `ece_null_mean`, `ece_null_95`: mean and 95th percentile of the ECE that a perfectly calibrated
    judge with these very confidences would show, by simulation with clips independent. Below the
    latter nothing tells the judge from a perfect one.
    """
    order = np.argsort(confidence, kind="stable")
    confidence, right = confidence[order], right[order]
    starts = _bin_starts(confidence)
    n_in_bin = np.diff(starts, append=len(confidence))
    n_right = np.add.reduceat(right, starts, dtype=int)
    stated = np.add.reduceat(confidence, starts)
    drawn = np.random.default_rng(0).random((_N_NULL, len(confidence))) < confidence
    n_right_null = np.add.reduceat(drawn, starts, axis=1, dtype=int)
    null = np.abs(n_right_null - stated).sum(axis=1) / len(confidence)
    return {
        "ece": float(np.abs(n_right - stated).sum() / len(confidence)),
        "ece_null_mean": float(null.mean()),
        "ece_null_95": float(np.quantile(null, 0.95)),
        "reliability": [
            {
                "n": int(n),
                "confidence": float(total / n),
                "accuracy": float(hits / n),
                "interval": list(wilson_interval(int(hits), int(n))),
            }
            for n, total, hits in zip(n_in_bin, stated, n_right, strict=True)
        ],
    }


def selective_accuracy(confidence: Floats, right: Flags) -> dict[str, Any]:
    """Return the accuracy on the most confident clips, where the others are left unanswered.

    `risk_coverage`: `[coverage, accuracy]` of the first k clips, for at most 100 values of k, the
    last being all. `aurc`: the mean over every k of 1 - accuracy (lower is better; Geifman and
    El-Yaniv 2017). `accuracy_at_50`, `accuracy_at_80`: at the smallest k that covers 50 and 80 %.
    Clips of equal confidence come in random order: all are expected values over it.
    """
    n = len(confidence)
    accuracy = _expected_right(confidence, right) / np.arange(1, n + 1)
    shown = sorted({_k_at(percent, n) for percent in range(1, _CURVE_POINTS + 1)})
    return {
        "risk_coverage": [[k / n, float(accuracy[k - 1])] for k in shown],
        "aurc": float((1 - accuracy).mean()),
        "accuracy_at_50": float(accuracy[_k_at(50, n) - 1]),
        "accuracy_at_80": float(accuracy[_k_at(80, n) - 1]),
    }


def _probability_scores(p: Floats, sarcastic: Flags, resamples: Resamples) -> dict[str, Any]:
    from sklearn.metrics import log_loss

    squared_errors = (p - sarcastic) ** 2
    brier = float(squared_errors.mean())
    clipped = np.clip(p, LOG_LOSS_CLIP, 1 - LOG_LOSS_CLIP)
    return {
        "brier": brier,
        "brier_interval": resamples.interval(resamples.mean(squared_errors)),
        "brier_skill": 1 - brier / BRIER_OF_HALF,
        "log_loss": float(log_loss(sarcastic, clipped, labels=[False, True])),
    }


def _bin_starts(confidence: Floats) -> npt.NDArray[np.intp]:
    """Return where each bin begins in the sorted `confidence`."""
    n = len(confidence)
    n_bins = _FEW_BINS if n < _FEW_CLIPS else _BINS
    _, first, count = np.unique(confidence, return_index=True, return_counts=True)
    bin_of = n_bins * (2 * first + count) // (2 * n)
    return first[np.flatnonzero(np.diff(bin_of, prepend=-1))]


def _expected_right(confidence: Floats, right: Flags) -> Floats:
    """Return the expected number of right clips among the k most confident, k = 1..n."""
    _, inverse, count = np.unique(-confidence, return_inverse=True, return_counts=True)
    share = np.bincount(inverse, weights=right) / count
    return np.cumsum(np.repeat(share, count))


def _k_at(percent: int, n: int) -> int:
    return -(-percent * n // 100)
