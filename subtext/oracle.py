"""Whether the reward rewards what it should, asked before training with answers of known rank.

On some training rows the answer with the row's own label, well formed, reasoned over 50 to 150
words and wholly confident, must score the most that a reward can be, 1, and an empty answer the
least, 0. Policies that give one label whatever the clip, the wrong label, and the right one with
half the confidence or without reasoning, must lie in between. A reward that fails this teaches
something else, and training on it would cost hours before anyone saw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from subtext.answer import SARCASTIC, SINCERE, format_answer
from subtext.errors import TrainingError
from subtext.rewards import RewardFn

Rows = Sequence[Mapping[str, Any]]

_ROWS_A_LABEL = 4
_HIGHEST, _LOWEST = 1.0, 0.0
_TOLERANCE = 1e-6
_OTHER = {SARCASTIC: SINCERE, SINCERE: SARCASTIC}
_SENTENCE = "The words and the delivery are weighed against each other before a verdict is given."
_REASONING = " ".join([_SENTENCE] * 7)  # 98 words


def check_reward(reward: RewardFn, rows: Rows) -> None:
    """Raise TrainingError, in words, where `reward` misranks known answers to some of `rows`.

    `rows` are training rows with `prompt` and `gold`; the first few of each label are taken. What
    the reward would log goes nowhere.
    """
    chosen = [
        row
        for label in (SARCASTIC, SINCERE)
        for row in [row for row in rows if row["gold"] == label][:_ROWS_A_LABEL]
    ]
    right = [_answer(row["gold"]) for row in chosen]
    scores = {
        "the gold answer": right,
        "the wrong label": [_answer(_OTHER[row["gold"]]) for row in chosen],
        "an unsure gold answer": [_answer(row["gold"], confidence=0.5) for row in chosen],
        "a gold answer without reasoning": [_answer(row["gold"], reasoning="") for row in chosen],
        "an empty answer": ["" for _ in chosen],
        f"always {SARCASTIC}": [_answer(SARCASTIC) for _ in chosen],
        f"always {SINCERE}": [_answer(SINCERE) for _ in chosen],
    }
    found = {name: _scored(reward, chosen, texts) for name, texts in scores.items()}
    if fault := _fault(found):
        raise TrainingError(
            f"the reward does not reward the right answer: {fault}. Set reward.kind to a reward "
            "that does, or repair it; nothing was trained."
        )


def _answer(label: str, confidence: float = 1.0, reasoning: str = _REASONING) -> str:
    return format_answer(reasoning, label, confidence)


def _scored(reward: RewardFn, rows: Rows, texts: Sequence[str]) -> list[float | None]:
    columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
    given = reward(
        [row["prompt"] for row in rows],
        [[{"role": "assistant", "content": text}] for text in texts],
        **columns,
    )
    return list(given)


def _fault(found: Mapping[str, Sequence[float | None]]) -> str:
    """What is wrong with the scores of each policy, in words; "" where nothing is."""
    for name, scores in found.items():
        for score in scores:
            if score is None or not math.isfinite(score):
                return f"{name} scores {score}, which is no number"
            if not _LOWEST - _TOLERANCE <= score <= _HIGHEST + _TOLERANCE:
                return f"{name} scores {score:.3f}, outside {_LOWEST:.0f} to {_HIGHEST:.0f}"
    means = {name: sum(map(_number, scores)) / len(scores) for name, scores in found.items()}
    gold, empty = found["the gold answer"], found["an empty answer"]
    if (least := min(map(_number, gold))) < _HIGHEST - _TOLERANCE:
        return f"the gold answer scores {least:.3f} and not the maximum, {_HIGHEST:.0f}"
    if (most := max(map(_number, empty))) > _LOWEST + _TOLERANCE:
        return f"an empty answer scores {most:.3f} and not the minimum, {_LOWEST:.0f}"
    for name, mean in means.items():
        if name in ("the gold answer", "an empty answer"):
            continue
        if not _LOWEST + _TOLERANCE < mean < _HIGHEST - _TOLERANCE:
            return (
                f"{name} scores {mean:.3f} on average and not between an empty answer "
                f"({_LOWEST:.0f}) and the gold answer ({_HIGHEST:.0f})"
            )
    return ""


def _number(score: float | None) -> float:
    assert score is not None
    return score
