"""P(sarcastic) as words alone give it: a committee of three text models, out of fold.

- `words`: TF-IDF of word 1- and 2-grams in context and line, logistic regression;
- `characters`: TF-IDF of character 2- to 4-grams in context and line, logistic regression;
- `bayes`: words of the line alone, complement naive Bayes.

They read what the judged model's prompt shows with `prompt.speaker = "masked"`: lines whose names
are masked (`subtext.data.masking`), no speaker, no show, no id. A clip is scored by models fitted
without its fold, vocabulary and IDF included, and folds keep scenes whole: neither the clip nor
another line of its scene was seen.

Raw probabilities of the three can't be averaged: on MUStARD the logistic models are about three
times too timid and naive Bayes four times too bold (slope of the label on the log-odds 3.5, 2.5 and
0.23), so the weakest would decide. Each is therefore calibrated by Platt's p = sigmoid(a z + b),
fitted on the other folds, which for this are scored by models that saw neither them nor the clip's
fold. The mean of calibrated members is too timid again (slope 1.6) and is calibrated the same way,
so that t means what it says: of clips with t = 0.35 about 35 in 100 are sarcastic. Where words
carry nothing, a is at or below 0 and t becomes the share of sarcastic clips: ambiguous.

t is averaged over `n_repeats` foldings and has four decimals. Ids are sorted before anything else,
so that the order of clips changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from subtext.data.clips import Scenarios
from subtext.data.folder import CLIPS_FILE
from subtext.data.masking import Cast, masked_clip
from subtext.data.pivot.file import NoPivotSetError, PivotConfig
from subtext.data.scenes import scene_of
from subtext.errors import Problem
from subtext.progress import Progress, Watcher, nobody

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

MEMBERS = {
    "words": "TF-IDF of word 1-2-grams, line and context; logistic regression",
    "characters": "TF-IDF of character 2-4-grams, line and context; logistic regression",
    "bayes": "words of the line; complement naive Bayes",
}
_NO_WORDS = "<no words>"
_LARGEST_LOG_ODDS = 30.0

Array = np.ndarray[Any, np.dtype[Any]]
# Sparse n-gram counts [clip, n-gram], and what makes an unfitted model.
Member = tuple[Any, Callable[[], Any]]


def text_scores(
    scenarios: Scenarios, config: PivotConfig, watcher: Watcher = nobody
) -> dict[str, dict[str, Any]]:
    """Return `{clip_id: {"text_score", "members": {name: …}}}`, out-of-fold P(sarcastic).

    `watcher` sees stage "pivot", from 0 to all foldings. Raises NoPivotSetError where the clips are
    too few for the folds.
    """
    ids = sorted(scenarios)
    labels = np.array([scenarios[clip_id]["sarcasm"] for clip_id in ids], dtype=np.int64)
    watcher(Progress("pivot", 0, config.n_repeats))
    members, scenes = make_committee(scenarios, ids)
    total, by_member = np.zeros(len(ids)), np.zeros((len(members), len(ids)))
    for repeat in range(config.n_repeats):
        seed = (config.seed + repeat) % 2**32
        folds = draw_folds(labels, scenes, config.n_folds, seed)
        t, of_members = fold_scores(list(members.values()), labels, folds)
        total += t
        by_member += of_members
        watcher(Progress("pivot", repeat + 1, config.n_repeats))
    return {
        clip_id: {
            "text_score": round(float(total[i]) / config.n_repeats, 4),
            "members": {
                name: round(float(by_member[m, i]) / config.n_repeats, 4)
                for m, name in enumerate(members)
            },
        }
        for i, clip_id in enumerate(ids)
    }


def fold_scores(members: list[Member], labels: Array, folds: Array) -> tuple[Array, Array]:
    """Return t [n] and the members' P(sarcastic) [member, n], calibrated, for one folding.

    `labels` are 0 or 1, `folds` 0 to k - 1. No score depends on a label of its own fold.
    """
    raw = [_nested_log_odds(member, labels, folds) for member in members]
    t, of_members = np.zeros(len(labels)), np.zeros((len(members), len(labels)))
    for fold in range(int(folds.max()) + 1):
        judged, others = folds == fold, folds != fold
        calibrated = np.stack([_calibrated(log_odds[fold], labels, others) for log_odds in raw])
        of_members[:, judged] = calibrated[:, judged]
        mean = _log_odds(calibrated.mean(axis=0))
        t[judged] = _calibrated(mean, labels, others)[judged]
    return t, of_members


def make_committee(scenarios: Scenarios, ids: list[str]) -> tuple[dict[str, Member], Array]:
    """The members with their counts, and the scene [n] of each clip as a whole number."""
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import ComplementNB
    from sklearn.pipeline import make_pipeline

    cast = Cast.of(scenarios)
    masked = {clip_id: masked_clip(scenarios[clip_id], cast) for clip_id in ids}
    lines = [clip["utterance"] for clip in masked.values()]
    whole = ["\n".join((*clip["context"], clip["utterance"])) for clip in masked.values()]

    def counts(texts: list[str], *, binary: bool = False, **how: Any) -> Any:
        cut = CountVectorizer(**how).build_analyzer()
        grams = [cut(text) or [_NO_WORDS] for text in texts]
        return CountVectorizer(analyzer=_as_is, binary=binary).fit_transform(grams)

    def logistic() -> Pipeline:
        # liblinear: one thread and coordinate descent, the same result on every machine.
        model = LogisticRegression(solver="liblinear", random_state=0)
        return make_pipeline(TfidfTransformer(sublinear_tf=True), model)

    members: dict[str, Member] = {
        "words": (counts(whole, ngram_range=(1, 2)), logistic),
        "characters": (counts(whole, analyzer="char_wb", ngram_range=(2, 4)), logistic),
        "bayes": (counts(lines, binary=True), ComplementNB),
    }
    # Clips that differ in masked names alone are twins too: a line of their masked text joins them.
    joined = {}
    for clip_id, text in zip(ids, whole, strict=True):
        clip = scenarios[clip_id]
        joined[clip_id] = {**clip, "context": [*clip["context"], f"the whole text is: {text}"]}
    scenes = scene_of(joined)
    return members, np.unique([scenes[clip_id] for clip_id in ids], return_inverse=True)[1]


def draw_folds(labels: Array, scenes: Array, n_folds: int, seed: int) -> Array:
    """The fold [n] of every clip: scenes whole, classes balanced as far as scenes allow."""
    from sklearn.model_selection import StratifiedGroupKFold

    n_smaller = int(min(labels.sum(), (1 - labels).sum()))
    folds = np.zeros(len(labels), dtype=np.int64)
    if min(n_smaller, len(set(scenes.tolist()))) >= n_folds:
        divided = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed)
        for fold, (_, judged) in enumerate(divided.split(labels, labels, scenes)):
            folds[judged] = fold
    # Calibration fits on what is left without two folds.
    for pair in combinations(range(n_folds), 2):
        if len(set(labels[~np.isin(folds, pair)].tolist())) < 2 or not np.isin(pair, folds).all():
            problem = Problem(
                CLIPS_FILE, "clips", len(labels),
                f"are too few for n_folds = {n_folds}: {len(set(scenes.tolist()))} scenes, "
                f"{n_smaller} clips of the smaller class",
                "Add clips of both classes in scenes of their own, or set a smaller n_folds.",
            )  # fmt: skip
            raise NoPivotSetError("Pivot Set refused", [problem])
    return folds


def _nested_log_odds(member: Member, labels: Array, folds: Array) -> Array:
    """[fold, n] log-odds: row k of a clip comes from a model that saw neither k nor its fold.

    In row k the clips of fold k itself come from the model of all other folds.
    """
    counts, model = member
    n_folds = int(folds.max()) + 1
    scores = np.full((n_folds, len(labels)), np.nan)
    for unseen in [*combinations(range(n_folds), 2), *((k, k) for k in range(n_folds))]:
        seen = np.flatnonzero(~np.isin(folds, unseen))
        # The vocabulary of the clips seen, as if n-grams were counted in them alone.
        vocabulary = np.flatnonzero(counts[seen].getnnz(axis=0))
        fitted = model().fit(counts[seen][:, vocabulary], labels[seen])
        for judged_fold, row in {unseen, unseen[::-1]}:
            judged = np.flatnonzero(folds == judged_fold)
            p = fitted.predict_proba(counts[judged][:, vocabulary])[:, 1]
            scores[row, judged] = _log_odds(p)
    return scores


def _calibrated(log_odds: Array, labels: Array, others: Array) -> Array:
    """Platt's sigmoid [n], fitted on the clips in `others`; their base rate where it falls."""
    from sklearn.linear_model import LogisticRegression

    platt = LogisticRegression(C=1e6).fit(log_odds[others, None], labels[others])
    if platt.coef_[0, 0] <= 0:
        return np.full(len(labels), labels[others].mean())
    p: Array = platt.predict_proba(log_odds[:, None])[:, 1]
    return p


def _log_odds(p: Array) -> Array:
    with np.errstate(divide="ignore"):
        odds: Array = np.log(p) - np.log1p(-p)
    return np.clip(odds, -_LARGEST_LOG_ODDS, _LARGEST_LOG_ODDS)


def _as_is(document: list[str]) -> list[str]:
    return document
