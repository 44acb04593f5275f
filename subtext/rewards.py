"""What GRPO maximises, and the parts it is made of. Evaluation scores with the same function.

    reward = 0.70 correctness + 0.15 reasoning_length + 0.15 format          (0..1)

- correctness: 0.5 + 0.5 c for the right label and 0.5 - 0.5 c for the wrong one, c being the
  stated confidence; 0 for a malformed answer. This is the seed's rule and no proper scoring
  rule: its best c is 1 for any belief above one half, so a trained c says little.
- reasoning_length: see `reasoning_length_score`.
- format: 1 for a well-formed final block (`subtext.answer.parse_final`), else 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from subtext.answer import LABELS, parse_final, reasoning_text
from subtext.errors import ConfigError, Problem, SubtextError

RewardFn = Callable[..., list[float]]
Message = Mapping[str, Any]

_METRICS = {
    "reward_parts/correctness": "correctness",
    "reward_parts/reasoning_length": "reasoning_length",
    "reward_parts/format": "format",
    "accuracy": "_correct",
    "well_formed": "_well_formed",
    "confidence_mean": "_confidence",
}
_TABLE_COLUMNS = {
    "predicted": "_predicted",
    "confidence": "_confidence",
    "correct": "_correct",
    "well_formed": "_well_formed",
}
_SHORT_WORDS, _LONG_WORDS, _RAMBLING_WORDS = 50, 150, 300


class RewardInputError(SubtextError, ValueError):
    """A reward function was called with columns it cannot score.

    A ValueError too, since that is what callers of the seed's reward function catch.
    """


def reasoning_length_score(text: str) -> float:
    """Return the score of the think block's length in words, 0..1.

    Rises as words / 50 up to 50 words, is 1 up to 150, falls as 1 - (words - 150) / 300 up to
    300 words, and is 0.5 beyond. No think block: 0.
    """
    reasoning = reasoning_text(text)
    if reasoning is None:
        return 0.0
    # No need to hold more words than it takes to know that there are too many.
    words = len(reasoning.split(maxsplit=_RAMBLING_WORDS))
    if words < _SHORT_WORDS:
        return words / _SHORT_WORDS
    if words <= _LONG_WORDS:
        return 1.0
    if words <= _RAMBLING_WORDS:
        return 1.0 - (words - _LONG_WORDS) / 300.0
    return 0.5


def reward_decomposition(text: str, gold: str) -> dict[str, Any]:
    """Score one completion against its gold label ("sarcastic" or "sincere", any case).

    Returns the parts `correctness`, `reasoning_length`, `format` (0..1 each), their weighted
    sum `_total`, and what was read: `_correct`, `_well_formed`, `_predicted` (None where
    malformed), `_confidence` (0.5 where malformed). Raises RewardInputError for another gold.
    """
    if not isinstance(gold, str) or gold.lower() not in LABELS:
        raise _refused("gold", gold, "is no label", f"Use one of {', '.join(LABELS)}.")
    label, confidence, well_formed = parse_final(text)
    correct = well_formed and label == gold.lower()
    correctness = _correctness(correct, confidence) if well_formed else 0.0
    length = reasoning_length_score(text)
    form = 1.0 if well_formed else 0.0
    return {
        "correctness": correctness,
        "reasoning_length": length,
        "format": form,
        "_total": 0.70 * correctness + 0.15 * length + 0.15 * form,
        "_correct": correct,
        "_well_formed": well_formed,
        "_predicted": label,
        "_confidence": confidence,
    }


def seed_reward(
    prompts: Sequence[object] | None,
    completions: Sequence[str | Sequence[Message]],
    **columns: Any,
) -> list[float]:
    """Return one reward (0..1) a completion: TRL's signature, and the seed's.

    `completions` are strings, or conversations whose first message is the answer; `columns`
    holds `gold` and whatever else TRL passes. `prompts` are counted, not read. With TRL's
    `log_metric`, the batch means of the parts are logged beside the true accuracy; with
    `log_extra`, what was read goes to the table of completions. Means are over all completions:
    a malformed answer counts as wrong, with confidence 0.5.

    Raises RewardInputError when `gold` is absent, holds something other than a label, or
    columns differ in length, or when a completion has no text.
    """
    gold = _gold_column(prompts, completions, columns)
    scored = [
        reward_decomposition(text, label)
        for text, label in zip(_texts(completions), gold, strict=True)
    ]
    if scored and (log_metric := columns.get("log_metric")):
        for name, key in _METRICS.items():
            log_metric(name, sum(float(score[key]) for score in scored) / len(scored))
    if log_extra := columns.get("log_extra"):
        log_extra("gold", list(gold))
        for name, key in _TABLE_COLUMNS.items():
            log_extra(name, [score[key] for score in scored])
    return [score["_total"] for score in scored]


def make_reward_fn(kind: str = "seed") -> RewardFn:
    """Return the reward function of `reward.kind`, ready for TRL's `GRPOTrainer`.

    TRL logs it as `rewards/<kind>_reward/mean`. Raises ConfigError for an unknown kind.
    """
    if kind != "seed":
        problem = Problem("configuration", "reward.kind", kind, "is no reward", "Use seed.")
        raise ConfigError("Configuration refused", [problem])
    return seed_reward


def _correctness(correct: bool, confidence: float) -> float:
    return 0.5 + 0.5 * confidence if correct else 0.5 - 0.5 * confidence


def _gold_column(
    prompts: Sequence[object] | None,
    completions: Sequence[str | Sequence[Message]],
    columns: Mapping[str, Any],
) -> Sequence[str]:
    gold: Sequence[str] | None = columns.get("gold")
    if gold is None:
        remedy = "Add it to the dataset, as subtext.data.dataset.build_dataset does."
        raise _refused("gold", None, "is missing: the reward needs a gold column", remedy)
    for name, column in {"prompts": prompts, "gold": gold}.items():
        if column is not None and len(column) != len(completions):
            raise _refused(
                f"len({name})", len(column), f"differs from {len(completions)} completions",
                "Pass one entry a completion.",
            )  # fmt: skip
    return gold


def _texts(completions: Sequence[str | Sequence[Message]]) -> Iterator[str]:
    for completion in completions:
        text: object = completion
        if not isinstance(completion, str):
            text = completion[0].get("content") if completion else None
        if not isinstance(text, str):
            remedy = 'Pass a string or [{"role": "assistant", "content": "…"}].'
            raise _refused("completions", completion, "holds a completion without text", remedy)
        yield text


def _refused(field: str, value: object, problem: str, remedy: str) -> RewardInputError:
    return RewardInputError(str(Problem("reward", field, value, problem, remedy)))
