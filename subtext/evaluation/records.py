"""The record of one judged clip.

Answers are scored by the reward's own function, so that training and evaluation cannot drift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from subtext.answer import SARCASTIC, SINCERE, is_strict
from subtext.rewards import reward_decomposition

Records = Sequence[Mapping[str, Any]]

COMPLETION_CHARACTERS = 1500
"""How much of a completion a record keeps. It is scored whole."""


def score_completion(
    clip_id: str, clip: Mapping[str, Any], completion_text: str, ended: bool, n_tokens: int
) -> dict[str, Any]:
    """Return the record of one judged clip, plain JSON values only.

    `completion_text` is the decoded completion, `ended` whether the model ended it itself
    (rather than at the token limit), `n_tokens` its length in tokens. `reward_parts` holds the
    unweighted parts of `reward_total`. `strict`: an answer to the letter (`is_strict`) that the
    model ended.
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
        "p_sarcastic": p_sarcastic(score["_predicted"], score["_confidence"]),
        "correct": score["_correct"],
        "well_formed": score["_well_formed"],
        "strict": is_strict(completion_text) and ended,
        "reward_total": score["_total"],
        "reward_parts": {key: part for key, part in score.items() if not key.startswith("_")},
        "ended": ended,
        "n_tokens": n_tokens,
        "completion_text": completion_text[:COMPLETION_CHARACTERS],
    }


def right_by_clip(records: Records) -> dict[str, bool]:
    """Return clip id -> whether the answer was right."""
    return {record["clip_id"]: record["correct"] for record in records}


def p_sarcastic(predicted: str | None, confidence: float) -> float:
    """Return P(sarcastic) of what `parse_final` read: the confidence where sarcastic is predicted,
    1 - confidence where sincere is, and 0.5 where the answer is malformed."""
    # Rounded, so that 0.8 for sincere ties with 0.2 for sarcastic.
    return round(1.0 - confidence, 12) if predicted == SINCERE else confidence
