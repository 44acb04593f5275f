"""Trivial predictors: what a table of speakers, a word count or the clip's id alone would score.

A predictor is a function `(scenarios, train, held_out) -> P(sarcastic) of each held-out clip`, in
the order of `held_out`. It reads the labels of training clips only. Whatever else predicts from
clips can stand beside these under the same signature, and `score` gives its figures. A clip is
called sarcastic where p > 0.5; at exactly 0.5 it is called sincere, whatever its label.

On MUStARD's official folds the speaker's name alone reaches 0.69 accuracy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from subtext.evaluation.metrics import wilson_interval

Clip = Mapping[str, Any]
Scenarios = Mapping[str, Clip]
Predictor = Callable[[Scenarios, Sequence[str], Sequence[str]], list[float]]

_MEASURABLE = 2  # training clips of each label that a number must be known of, to fit anything


def majority(scenarios: Scenarios, train: Sequence[str], held_out: Sequence[str]) -> list[float]:
    """The share of sarcastic training clips, for every clip."""
    return [_share(scenarios, train)] * len(held_out)


def share_by(key: Callable[[str, Clip], str]) -> Predictor:
    """Return the predictor that knows the training clips' share of sarcastic ones for each `key`
    of (clip id, clip): (sarcastic + 1) / (clips + 2), and the share of all for an unseen key."""

    def predict(scenarios: Scenarios, train: Sequence[str], held_out: Sequence[str]) -> list[float]:
        n_clips = Counter(key(clip_id, scenarios[clip_id]) for clip_id in train)
        n_sarcastic = Counter(
            key(clip_id, scenarios[clip_id]) for clip_id in train if scenarios[clip_id]["sarcasm"]
        )
        unseen = _share(scenarios, train)
        keys = [key(clip_id, scenarios[clip_id]) for clip_id in held_out]
        return [
            (n_sarcastic[name] + 1) / (n_clips[name] + 2) if name in n_clips else unseen
            for name in keys
        ]

    return predict


def logistic(numbers: Callable[[str, Clip], Sequence[float] | None]) -> Predictor:
    """Return a logistic regression (scikit-learn's, C = 1) on `numbers` of (clip id, clip),
    standardised by the training clips. A clip without numbers gets the share of all; so does
    every clip where fewer than two training clips of a label have them."""

    def predict(scenarios: Scenarios, train: Sequence[str], held_out: Sequence[str]) -> list[float]:
        values = {
            clip_id: found
            for clip_id in (*train, *held_out)
            if (found := numbers(clip_id, scenarios[clip_id])) is not None
        }
        fitted_on = [clip_id for clip_id in train if clip_id in values]
        labels = [bool(scenarios[clip_id]["sarcasm"]) for clip_id in fitted_on]
        probabilities = dict.fromkeys(held_out, _share(scenarios, train))
        judged = [clip_id for clip_id in held_out if clip_id in values]
        if judged and min(labels.count(True), labels.count(False)) >= _MEASURABLE:
            fitted = _fit(np.array([values[clip_id] for clip_id in fitted_on], float), labels)
            found = fitted(np.array([values[clip_id] for clip_id in judged], float))
            probabilities |= dict(zip(judged, found, strict=True))
        return list(probabilities.values())

    return predict


def by_position(scenarios: Scenarios, train: Sequence[str], held_out: Sequence[str]) -> list[float]:
    """A logistic regression on the clip's position in the file, whose order groups scenes."""
    position = {clip_id: float(index) for index, clip_id in enumerate(scenarios)}
    return logistic(lambda clip_id, _: [position[clip_id]])(scenarios, train, held_out)


def _line_words(_: str, clip: Clip) -> list[float]:
    return [float(len(clip["utterance"].split()))]


def _line_and_context_words(clip_id: str, clip: Clip) -> list[float]:
    return [*_line_words(clip_id, clip), float(sum(len(line.split()) for line in clip["context"]))]


def _duration_s(_: str, clip: Clip) -> list[float] | None:
    return [float(clip["prosody"]["duration_s"])] if clip.get("prosody") else None


BASELINES: dict[str, Predictor] = {
    "train majority": majority,
    "speaker": share_by(lambda _, clip: clip["speaker"]),
    "show": share_by(lambda _, clip: clip["show"]),
    "line length": logistic(_line_words),
    "line + context length": logistic(_line_and_context_words),
    "duration": logistic(_duration_s),
    "id order": by_position,
    "id prefix": share_by(lambda clip_id, _: clip_id.partition("_")[0]),
}
"""By name, in the order they are shown. "duration" is worth the majority where no prosody is."""


def score(probabilities: Sequence[float], labels: Sequence[bool]) -> dict[str, Any]:
    """Return accuracy with its 95 % Wilson interval and AUROC (None where one label is missing).

    Raises EvaluationError without clips.
    """
    n_correct = sum((p > 0.5) == label for p, label in zip(probabilities, labels, strict=True))
    interval = wilson_interval(n_correct, len(labels))
    return {
        "accuracy": n_correct / len(labels),
        "accuracy_interval": list(interval),
        "auroc": auroc(probabilities, labels),
    }


def auroc(scores: Sequence[float], labels: Sequence[bool]) -> float | None:
    """Return the share of (sarcastic, sincere) pairs in which the sarcastic clip scores higher, a
    tie counting half: the Mann-Whitney form of the area under the ROC curve. None where one label
    is missing."""
    if len(set(labels)) < 2:
        return None
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, scores))


def _share(scenarios: Scenarios, train: Sequence[str]) -> float:
    return sum(bool(scenarios[clip_id]["sarcasm"]) for clip_id in train) / len(train)


def _fit(
    rows: np.ndarray[Any, Any], labels: Sequence[bool]
) -> Callable[[np.ndarray[Any, Any]], list[float]]:
    """Fit a logistic regression on `rows` [clips, numbers]; return P(sarcastic) of other rows."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, labels)
    return lambda others: [float(p) for p in model.predict_proba(others)[:, 1]]
