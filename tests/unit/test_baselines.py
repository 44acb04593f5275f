"""Trivial predictors: what they give on cases counted by hand, and on the real clips."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtext.data.folds import read_folds
from subtext.errors import EvaluationError
from subtext.evaluation.baselines import BASELINES, auroc, logistic, score

MUSTARD = Path(__file__).resolve().parents[3] / "shared" / "mustard"
needs_mustard = pytest.mark.skipif(not MUSTARD.is_dir(), reason="MUStARD is not beside it")


def clip(speaker: str, sarcasm: bool, words: int = 3, **fields: Any) -> dict[str, Any]:
    return {
        "speaker": speaker, "show": "X", "sarcasm": sarcasm, "utterance": "word " * words,
        "context": [], "prosody": None, **fields,
    }  # fmt: skip


TRAIN = {
    "1_1": clip("A", True, 9),
    "1_2": clip("A", True, 8),
    "1_3": clip("A", False, 2, show="Y"),
    "2_4": clip("B", False, 1),
    "2_5": clip("B", False, 2),
}
HELD_OUT = {"1_6": clip("A", True, 9), "2_7": clip("B", True, 1), "3_8": clip("C", True, show="Z")}
CLIPS = {**TRAIN, **HELD_OUT}


def predicted(name: str, clips: dict[str, dict[str, Any]] = CLIPS) -> list[float]:
    return BASELINES[name](clips, list(TRAIN), list(HELD_OUT))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("train majority", [2 / 5] * 3, id="share of all"),
        pytest.param("speaker", [3 / 5, 1 / 4, 2 / 5], id="smoothed, the unseen as all"),
        pytest.param("show", [3 / 6, 3 / 6, 2 / 5], id="one show seen"),
        pytest.param("id prefix", [3 / 5, 1 / 4, 2 / 5], id="text before the underscore"),
        pytest.param("duration", [2 / 5] * 3, id="no record: the share of all"),
    ],
)
def test_shares_counted_by_hand(name: str, expected: list[float]) -> None:
    assert predicted(name) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["line length", "line + context length", "id order"])
def test_numbers_are_fitted_and_the_direction_is_learned(name: str) -> None:
    probabilities = predicted(name)
    assert all(0 < p < 1 for p in probabilities)
    assert probabilities == predicted(name)
    if name != "id order":
        assert probabilities[0] > 0.5 > probabilities[1]


def test_context_counts_beside_the_line() -> None:
    talkative = {
        key: {**value, "context": ["so many words"] if value["sarcasm"] else []}
        for key, value in CLIPS.items()
    }
    before = predicted("line + context length")
    assert predicted("line + context length", talkative)[1] > before[1]


def test_the_labels_of_held_out_clips_are_not_read() -> None:
    flipped = {
        key: {**value, "sarcasm": not value["sarcasm"]} if key in HELD_OUT else value
        for key, value in CLIPS.items()
    }
    for name in BASELINES:
        assert predicted(name) == predicted(name, flipped)


def test_a_clip_without_a_record_gets_the_share_of_all() -> None:
    seconds = {"1_1": 9, "1_2": 8, "1_3": 1, "2_4": 1, "1_6": 9}
    clips = {
        key: {**value, "prosody": {"duration_s": seconds[key]} if key in seconds else None}
        for key, value in CLIPS.items()
    }
    first, *others = predicted("duration", clips)
    assert first > 0.5
    assert others == [2 / 5] * 2


def test_a_number_that_is_the_same_everywhere_tells_nothing() -> None:
    same = logistic(lambda *_: [7.0])(CLIPS, list(TRAIN), list(HELD_OUT))
    assert same == pytest.approx([2 / 5] * 3, abs=0.01)


def test_half_is_called_sincere_and_ties_count_half_in_auroc() -> None:
    figures = score([0.5, 0.5, 0.9, 0.1], [True, False, True, False])
    assert figures["accuracy"] == 0.75
    low, high = figures["accuracy_interval"]
    assert low < 0.75 < high
    assert figures["auroc"] == 0.875


def test_no_clip_gives_no_score() -> None:
    with pytest.raises(EvaluationError):
        score([], [])


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_auroc_is_the_share_of_pairs_in_order(rows: list[tuple[int, bool]]) -> None:
    scores, labels = [float(value) for value, _ in rows], [label for _, label in rows]
    pairs = [
        (one > other) + (one == other) / 2
        for one, is_positive in rows
        if is_positive
        for other, is_other_positive in rows
        if not is_other_positive
    ]
    found = auroc(scores, labels)
    assert (found is None) == (not pairs)
    if pairs:
        assert math.isclose(found, sum(pairs) / len(pairs))


# Measured independently: science.md, section 3; mean accuracy of the five official folds, and of
# Friends held out.
MEASURED = {
    "train majority": (0.459, 0.427),
    "speaker": (0.691, 0.489),
    "show": (0.549, 0.427),
    "line length": (0.541, 0.424),
    "line + context length": (0.571, 0.419),
    "id prefix": (0.439, 0.427),
}


@needs_mustard
@pytest.mark.parametrize("name", MEASURED)
def test_values_on_the_real_clips(name: str) -> None:
    clips = json.loads((MUSTARD / "sarcasm_data.json").read_text())
    friends = [key for key, value in clips.items() if value["show"] == "FRIENDS"]
    others = [key for key in clips if key not in set(friends)]
    folds = [tuple(fold) for fold in read_folds(MUSTARD, clips)]
    accuracies = [
        score(BASELINES[name](clips, train, held_out), [clips[key]["sarcasm"] for key in held_out])[
            "accuracy"
        ]
        for train, held_out in [*folds, (others, friends)]
    ]
    official, show = MEASURED[name]
    assert sum(accuracies[:5]) / 5 == pytest.approx(official, abs=0.006)
    assert accuracies[5] == pytest.approx(show, abs=0.006)
