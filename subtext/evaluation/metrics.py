"""Records of judged clips, and the figures made of them.

Answers are scored by the reward's own function, so that training and evaluation cannot drift.
Every rate is over the clips judged: a malformed answer counts as wrong, with confidence 0.5.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from subtext.answer import SARCASTIC, SINCERE
from subtext.errors import EvaluationError, Problem
from subtext.rewards import reward_decomposition

COMPLETION_CHARACTERS = 1500
"""How much of a completion a record keeps. It is scored whole."""

Z_95 = 1.959963984540054
"""The standard normal's 0.975 quantile: a two-sided 95 % interval."""


def score_completion(
    clip_id: str, clip: Mapping[str, Any], completion_text: str, ended: bool, n_tokens: int
) -> dict[str, Any]:
    """Return the record of one judged clip, plain JSON values only.

    `completion_text` is the decoded completion, `ended` whether the model ended it itself
    (rather than at the token limit), `n_tokens` its length in tokens. `reward_parts` holds the
    unweighted parts of `reward_total`.
    """
    gold = SARCASTIC if clip["sarcasm"] else SINCERE
    score = reward_decomposition(completion_text, gold)
    return {
        "clip_id": clip_id,
        "gold": gold,
        "is_pivot": bool(clip.get("is_pivot")),
        "has_prosody": bool(clip.get("prosody")),
        "predicted": score["_predicted"],
        "confidence": score["_confidence"],
        "correct": score["_correct"],
        "well_formed": score["_well_formed"],
        "reward_total": score["_total"],
        "reward_parts": {key: part for key, part in score.items() if not key.startswith("_")},
        "ended": ended,
        "n_tokens": n_tokens,
        "completion_text": completion_text[:COMPLETION_CHARACTERS],
    }


def summarise(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of `records` (from `score_completion`), all finite, and the records.

    The seed's keys are `n_eval_clips, mean_reward, well_formed_rate, accuracy, pivot_in_eval,
    pivot_correct, results`. Beside them stand the counts behind the rates, 95 % Wilson
    intervals `[low, high]`, and `majority_accuracy`: what the commoner gold label alone scores
    on these clips. Raises EvaluationError when there is no record or a clip is there twice.
    """
    _check(records)
    n_clips = len(records)
    n_correct = _count(records, "correct")
    n_well_formed = _count(records, "well_formed")
    n_sarcastic = sum(record["gold"] == SARCASTIC for record in records)
    pivots = [record for record in records if record["is_pivot"]]
    return {
        "n_eval_clips": n_clips,
        "n_with_prosody": _count(records, "has_prosody"),
        "n_correct": n_correct,
        "n_well_formed": n_well_formed,
        "n_ended": _count(records, "ended"),
        "accuracy": n_correct / n_clips,
        "accuracy_interval": list(wilson_interval(n_correct, n_clips)),
        "majority_accuracy": max(n_sarcastic, n_clips - n_sarcastic) / n_clips,
        "well_formed_rate": n_well_formed / n_clips,
        "well_formed_interval": list(wilson_interval(n_well_formed, n_clips)),
        "mean_reward": _mean(records, "reward_total"),
        "mean_confidence": _mean(records, "confidence"),
        "mean_tokens": _mean(records, "n_tokens"),
        "pivot_in_eval": len(pivots),
        "pivot_correct": _count(pivots, "correct"),
        "results": [dict(record) for record in records],
    }


def wilson_interval(successes: int, n: int, z: float = Z_95) -> tuple[float, float]:
    """Return the score interval (low, high) of a proportion, 0 <= low <= successes/n <= high <= 1.

    With p = successes / n: (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n).
    Source: E. B. Wilson (1927), Probable inference, the law of succession, and statistical
    inference, JASA 22(158), 209-212. It assumes independent clips, which clips of one scene
    are not quite. Raises EvaluationError unless 0 <= successes <= n and n >= 1.
    """
    if n < 1 or not 0 <= successes <= n:
        problem = Problem(
            "interval", "successes, n", (successes, n), "is no proportion",
            "Give counts with 0 <= successes <= n and n >= 1.",
        )  # fmt: skip
        raise EvaluationError(str(problem))
    p = successes / n
    centre = p + z * z / (2 * n)
    half_width = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At p = 0 and 1 the exact bound is p itself; rounding must not move it past p.
    low = min(p, max(0.0, (centre - half_width) / scale))
    high = max(p, min(1.0, (centre + half_width) / scale))
    return low, high


def _check(records: Sequence[Mapping[str, Any]]) -> None:
    ids = [record["clip_id"] for record in records]
    if not ids:
        problem = Problem(
            "held-out evaluation", "records", [], "no clip was judged, so there is no result",
            "Raise evaluation.n_eval_clips or data.eval_ratio, or see why generation stopped.",
        )  # fmt: skip
        raise EvaluationError(str(problem))
    twice = sorted(clip_id for clip_id, count in Counter(ids).items() if count > 1)
    if twice:
        problem = Problem(
            "held-out evaluation", "clip_id", twice, "judged more than once in one pass",
            "Keep one record a clip; an old pass's records may lie in the same file.",
        )  # fmt: skip
        raise EvaluationError(str(problem))


def _count(records: Sequence[Mapping[str, Any]], field: str) -> int:
    return sum(bool(record[field]) for record in records)


def _mean(records: Sequence[Mapping[str, Any]], field: str) -> float:
    return float(sum(record[field] for record in records) / len(records))
