"""Trivial predictors: what a table of speakers, a word count or a bag of words alone would score.

A predictor is a function `(scenarios, train, held_out) -> P(sarcastic) of each held-out clip`, in
the order of `held_out`. It reads the labels of training clips only. A clip is called sarcastic
where p > 0.5; at exactly 0.5 it is called sincere, whatever its label.

`BASELINES` are those of the leak report, on all held-out clips; `COMPARED` those that an
evaluation sets beside a policy, on the clips that it judged. Words are read as the file has them,
names included, also where the policy's prompt masks them.

On MUStARD's official folds the speaker's name alone reaches 0.69 accuracy, a bag of words 0.61
from the line and 0.65 from line and context.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from subtext.config import BaselineName
from subtext.data.clips import Clip, Scenarios
from subtext.evaluation.confidence import auroc
from subtext.evaluation.statistics import wilson_interval

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

Predictor = Callable[[Scenarios, Sequence[str], Sequence[str]], list[float]]

_MEASURABLE = 2  # training clips of each label that a number must be known of, to fit anything
_NO_WORDS = "<no words>"
_C_WORDS = 3.0  # rows of TF-IDF have length 1, so that C = 1 leaves every p near the share

PROSODY_NUMBERS = (
    "f0_level_st", "f0_sd_st", "f0_range_st", "f0_slope_st_per_s", "f0_final_slope_st_per_s",
    "intensity_sd_db", "articulation_rate_syllables_per_s", "pause_count", "voiced_fraction",
    "hnr_mean_db",
)  # fmt: skip
"""What LR on prosody reads: the numbers behind a leak-free prompt. Duration, a level in Hz or dB
and seconds of pause are left out, since on MUStARD they tell the show. `f0_level_st` is known of
described records only."""


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
    standardised by the training clips. A number that is NaN is taken as the training clips' median.
    A clip without numbers gets the share of all; so does every clip where fewer than two training
    clips of a label have them."""

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


def text_logistic(
    text: Callable[[Clip], str], numbers: Callable[[str, Clip], Sequence[float]] | None = None
) -> Predictor:
    """Return a logistic regression (C = 3) on TF-IDF of the word 1- and 2-grams of `text`, with
    vocabulary and IDF of the training clips, and beside it on `numbers`, treated as in `logistic`.
    The share of all where the training clips have one label."""

    def predict(scenarios: Scenarios, train: Sequence[str], held_out: Sequence[str]) -> list[float]:
        labels = [bool(scenarios[clip_id]["sarcasm"]) for clip_id in train]
        if len(set(labels)) < 2:
            return majority(scenarios, train, held_out)

        def rows(clip_ids: Sequence[str]) -> np.ndarray[Any, Any]:
            clips = [(clip_id, scenarios[clip_id]) for clip_id in clip_ids]
            values = [(text(clip), *(numbers(key, clip) if numbers else ())) for key, clip in clips]
            return np.array(values, dtype=object)

        return _fit_words(rows(train), labels)(rows(held_out))

    return predict


def by_position(scenarios: Scenarios, train: Sequence[str], held_out: Sequence[str]) -> list[float]:
    """A logistic regression on the clip's position in the file, whose order groups scenes."""
    position = {clip_id: float(index) for index, clip_id in enumerate(scenarios)}
    return logistic(lambda clip_id, _: [position[clip_id]])(scenarios, train, held_out)


def _line_words(_: str, clip: Clip) -> list[float]:
    return [float(len(clip["utterance"].split()))]


def _line_and_context_words(clip_id: str, clip: Clip) -> list[float]:
    return [*_line_words(clip_id, clip), float(sum(len(line.split()) for line in clip["context"]))]


def _line(clip: Clip) -> str:
    return str(clip["utterance"])


def _line_and_context(clip: Clip) -> str:
    return "\n".join((*clip["context"], clip["utterance"]))


def _prosody(_: str, clip: Clip) -> list[float] | None:
    record = clip.get("prosody")
    if not record:
        return None
    found = [record.get(name) for name in PROSODY_NUMBERS]
    return [np.nan if value is None else float(value) for value in found]


def _prosody_or_missing(clip_id: str, clip: Clip) -> list[float]:
    return _prosody(clip_id, clip) or [np.nan] * len(PROSODY_NUMBERS)


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

COMPARED: dict[BaselineName, Predictor] = {
    "train majority": BASELINES["train majority"],
    "speaker": BASELINES["speaker"],
    "show": BASELINES["show"],
    "line length": BASELINES["line length"],
    "TF-IDF line": text_logistic(_line),
    "TF-IDF line + context": text_logistic(_line_and_context),
    "prosody": logistic(_prosody),
    "TF-IDF line + context + prosody": text_logistic(_line_and_context, _prosody_or_missing),
}
"""By name, in the order they are shown."""


def in_metric_names(name: str) -> str:
    """Return the name of a predictor as it stands in a metric's: `TF-IDF_line_context`."""
    return name.replace(" + ", "_").replace(" ", "_")


def baseline_table(
    scenarios: Scenarios, train: Sequence[str], judged: Sequence[str]
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, bool]]]:
    """Return ({name: figures}, {name: {clip id: right}}) of `COMPARED` on the clips `judged`.

    Figures: what `score` gives, `f1_weighted` and `brier`. All are fitted on the clips `train`.
    """
    labels = [bool(scenarios[clip_id]["sarcasm"]) for clip_id in judged]
    table: dict[str, dict[str, Any]] = {}
    correct: dict[str, dict[str, bool]] = {}
    for name, predict in COMPARED.items():
        probabilities = predict(scenarios, train, judged)
        table[name] = {**score(probabilities, labels), **_more_figures(probabilities, labels)}
        answers = zip(judged, probabilities, labels, strict=True)
        correct[name] = {clip_id: (p > 0.5) == label for clip_id, p, label in answers}
    return table, correct


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


def _more_figures(probabilities: Sequence[float], labels: Sequence[bool]) -> dict[str, float]:
    from sklearn.metrics import brier_score_loss, f1_score

    called = [p > 0.5 for p in probabilities]
    return {
        "f1_weighted": float(f1_score(labels, called, average="weighted", zero_division=0)),
        "brier": float(brier_score_loss(labels, probabilities, labels=[False, True])),
    }


def _share(scenarios: Scenarios, train: Sequence[str]) -> float:
    return sum(bool(scenarios[clip_id]["sarcasm"]) for clip_id in train) / len(train)


def _fit(
    rows: np.ndarray[Any, Any], labels: Sequence[bool]
) -> Callable[[np.ndarray[Any, Any]], list[float]]:
    """Fit a logistic regression on `rows` [clips, numbers]; return P(sarcastic) of other rows."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(_standardised(), LogisticRegression()).fit(rows, labels)
    return lambda others: [float(p) for p in model.predict_proba(others)[:, 1]]


def _fit_words(
    rows: np.ndarray[Any, Any], labels: Sequence[bool]
) -> Callable[[np.ndarray[Any, Any]], list[float]]:
    """Fit on `rows` [clips, 1 + numbers], a text first; return P(sarcastic) of other rows."""
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    cut = CountVectorizer(ngram_range=(1, 2)).build_analyzer()
    # liblinear: one thread and coordinate descent, the same result on every machine.
    model = make_pipeline(
        ColumnTransformer(
            [
                ("words", TfidfVectorizer(analyzer=_with_words(cut), sublinear_tf=True), 0),
                ("numbers", _standardised(), list(range(1, rows.shape[1]))),
            ]
        ),
        LogisticRegression(C=_C_WORDS, solver="liblinear", random_state=0),
    ).fit(rows, labels)
    return lambda others: [float(p) for p in model.predict_proba(others)[:, 1]]


def _with_words(cut: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """A text without words has one token, so that no vocabulary is empty."""
    return lambda text: cut(text) or [_NO_WORDS]


def _standardised() -> Pipeline:
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()
    )
