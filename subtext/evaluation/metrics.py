"""The figures of a pass: one policy's records of the clips it judged.

Every rate is over the clips judged. A malformed answer is wrong, with p = 0.5, and for precision,
recall and F1 a prediction of neither label. Intervals are 95 %, `[low, high]`: Wilson's for
proportions, else a bootstrap over scenes: None where all clips are of one scene, and a point where
all score alike, however few they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from subtext.answer import LABELS, SARCASTIC
from subtext.errors import EvaluationError, Problem
from subtext.evaluation.confidence import confidence_figures
from subtext.evaluation.records import Records
from subtext.evaluation.statistics import Floats, Resamples, wilson_interval

MALFORMED = "malformed"
"""What a malformed answer counts as in `confusion`."""


def summarise(records: Records, scenes: Mapping[str, str]) -> dict[str, Any]:
    """Return the figures of `records` (from `score_completion`), all finite, and the records.

    `scenes` gives each clip's scene. The seed's keys are `n_eval_clips, mean_reward,
    well_formed_rate, accuracy, pivot_in_eval, pivot_correct, results`. Beside them:

    - the counts behind the rates (`n_correct`, `n_well_formed`, `n_strict`, `n_ended`,
      `n_with_prosody`), `strict_rate`, and `majority_accuracy`: what the commoner gold label alone
      scores on these clips
    - `precision`, `recall` and `f1`, `_weighted` by how common the gold labels are and `_macro`
      (scikit-learn's; a label neither there nor predicted scores 0)
    - `confusion`: gold label -> predicted label or "malformed" -> clips
    - `reward_parts`: the means of the reward's unweighted parts
    - what `confidence_figures` gives

    `accuracy`, `well_formed_rate`, `strict_rate`, `mean_reward` and both F1 have an `…_interval`.
    The order of `records` changes no figure. Raises EvaluationError when there is no record, a clip
    is there twice, or one has no scene.
    """
    _check(records, scenes)
    ordered = sorted(records, key=lambda record: str(record["clip_id"]))
    resamples = Resamples.of([scenes[record["clip_id"]] for record in ordered])
    pivots = [record for record in ordered if record["is_pivot"]]
    n_sarcastic = sum(record["gold"] == SARCASTIC for record in ordered)
    return {
        "n_eval_clips": len(ordered),
        "n_with_prosody": _count(ordered, "has_prosody"),
        "n_ended": _count(ordered, "ended"),
        **_proportion(ordered, "correct", "accuracy", "accuracy_interval"),
        **_proportion(ordered, "well_formed", "well_formed_rate", "well_formed_interval"),
        **_proportion(ordered, "strict", "strict_rate", "strict_interval"),
        "majority_accuracy": max(n_sarcastic, len(ordered) - n_sarcastic) / len(ordered),
        "mean_reward": float(_column(ordered, "reward_total").mean()),
        "mean_reward_interval": resamples.interval(
            resamples.mean(_column(ordered, "reward_total"))
        ),
        "reward_parts": _mean_parts(ordered),
        "mean_confidence": float(_column(ordered, "confidence").mean()),
        "mean_tokens": float(_column(ordered, "n_tokens").mean()),
        "pivot_in_eval": len(pivots),
        "pivot_correct": _count(pivots, "correct"),
        **_classification(ordered, resamples),
        **confidence_figures(ordered, resamples),
        "results": [dict(record) for record in records],
    }


def without_records(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of `summary` (from `summarise`) alone."""
    return {key: value for key, value in summary.items() if key != "results"}


def _check(records: Records, scenes: Mapping[str, str]) -> None:
    ids = [record["clip_id"] for record in records]
    if not ids:
        raise _refused(
            "records", [], "no clip was judged, so there is no result",
            "Raise evaluation.n_eval_clips or data.eval_ratio, or see why generation stopped.",
        )  # fmt: skip
    if twice := sorted(clip_id for clip_id, count in Counter(ids).items() if count > 1):
        raise _refused(
            "clip_id", twice, "judged more than once in one pass",
            "Keep one record a clip; an old pass's records may lie in the same file.",
        )  # fmt: skip
    if without := sorted(set(ids) - set(scenes)):
        raise _refused(
            "clip_id", without, "clips without a scene",
            "Give the scenes of the scenarios that were judged.",
        )  # fmt: skip


def _classification(records: Records, resamples: Resamples) -> dict[str, Any]:
    from sklearn.metrics import precision_recall_fscore_support

    gold = [record["gold"] for record in records]
    predicted = [record["predicted"] or MALFORMED for record in records]
    resampled_f1 = f1_samples(gold, predicted, resamples)
    figures: dict[str, Any] = {}
    for average in ("weighted", "macro"):
        precision, recall, f1, _ = precision_recall_fscore_support(
            gold, predicted, labels=LABELS, average=average, zero_division=0.0
        )
        figures[f"precision_{average}"] = float(precision)
        figures[f"recall_{average}"] = float(recall)
        figures[f"f1_{average}"] = float(f1)
        figures[f"f1_{average}_interval"] = resamples.interval(resampled_f1[average])
    pairs = Counter(zip(gold, predicted, strict=True))
    figures["confusion"] = {
        label: {answer: pairs[label, answer] for answer in (*LABELS, MALFORMED)} for label in LABELS
    }
    return figures


def f1_samples(
    gold: Sequence[str], predicted: Sequence[str], resamples: Resamples
) -> dict[str, Floats]:
    """Return both averages of F1 in each resample: 2 hits / (gold + predicted), 0 for 0 / 0."""
    is_gold = np.array(gold)[:, None] == LABELS
    is_predicted = np.array(predicted)[:, None] == LABELS
    n_gold, n_predicted = resamples.sums(is_gold), resamples.sums(is_predicted)
    f1 = 2 * resamples.sums(is_gold & is_predicted) / np.maximum(n_gold + n_predicted, 1)
    n_clips = n_gold.sum(axis=1)
    return {"weighted": (n_gold * f1).sum(axis=1) / n_clips, "macro": f1.mean(axis=1)}


def _proportion(records: Records, field: str, rate: str, bounds: str) -> dict[str, Any]:
    n_hits = _count(records, field)
    return {
        f"n_{field}": n_hits,
        rate: n_hits / len(records),
        bounds: list(wilson_interval(n_hits, len(records))),
    }


def _mean_parts(records: Records) -> dict[str, float]:
    return {
        part: float(np.mean([record["reward_parts"][part] for record in records]))
        for part in records[0]["reward_parts"]
    }


def _count(records: Records, field: str) -> int:
    return sum(bool(record[field]) for record in records)


def _column(records: Records, field: str) -> Floats:
    return np.array([record[field] for record in records], float)


def _refused(field: str, value: object, problem: str, remedy: str) -> EvaluationError:
    return EvaluationError(str(Problem("held-out evaluation", field, value, problem, remedy)))
