"""How long prompts are in a model's own tokens, and whether answer and prompt fit its context."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from subtext.config import RunConfig
from subtext.data.clips import Scenarios
from subtext.data.masking import Cast
from subtext.errors import Problem
from subtext.policy.load import CHAT_TEMPLATE_OPTIONS
from subtext.prompts import build_messages

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def prompt_lengths(
    tokenizer: PreTrainedTokenizerBase,
    clip_ids: Collection[str],
    scenarios: Scenarios,
    config: RunConfig,
) -> dict[str, int]:
    """Return the number of tokens of each clip's prompt, the opening of the answer included."""
    cast = Cast.of(scenarios)
    texts = [
        tokenizer.apply_chat_template(
            build_messages(clip_id, scenarios, config.prompt, cast),
            add_generation_prompt=True,
            tokenize=False,
            **CHAT_TEMPLATE_OPTIONS,
        )
        for clip_id in clip_ids
    ]
    # The chat template has written the special tokens already.
    tokens = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    return dict(zip(clip_ids, map(len, tokens), strict=True))


def longest_answer(config: RunConfig) -> int:
    """Tokens of the longest answer that training or judging may ask for."""
    return max(config.grpo.max_completion_length, config.evaluation.max_new_tokens)


def context_problems(
    lengths: Mapping[str, int], config: RunConfig, max_positions: int | None
) -> Iterator[Problem]:
    """Yield what does not fit into `model.max_context_tokens`, or into the model itself.

    `max_positions` is the model's own limit, in tokens; None where it is not known. TRL never
    truncates a prompt, so an overlong one would only show as a crash or as noise.
    """
    if not lengths:
        return
    answer, limit = longest_answer(config), config.model.max_context_tokens
    longest = max(lengths, key=lambda clip_id: lengths[clip_id])
    needed = lengths[longest] + answer
    reads = f"clip {longest} has {lengths[longest]} tokens beside an answer of up to {answer}"
    shorter = "shorten grpo.max_completion_length and evaluation.max_new_tokens"
    if max_positions is not None and needed > max_positions:
        yield Problem(
            "configuration", "model.name", config.model.name,
            f"reads {max_positions} tokens, too few: {reads}",
            f"Choose a model that reads {needed} tokens, or {shorter}.",
        )  # fmt: skip
    elif needed > limit:
        too_long = sum(length + answer > limit for length in lengths.values())
        yield Problem(
            "configuration", "model.max_context_tokens", limit,
            f"is too small for {too_long} of {len(lengths)} prompts: {reads}",
            f"Set it to {needed} or more, where the model reads that far, or {shorter}.",
        )  # fmt: skip


def measured(lengths: Mapping[str, int], config: RunConfig) -> dict[str, Any]:
    """The longest prompt, its clip and what it leaves, as JSON."""
    longest = max(lengths, key=lambda clip_id: lengths[clip_id])
    return {
        "longest_prompt": lengths[longest],
        "clip_id": longest,
        "longest_answer": longest_answer(config),
        "max_context_tokens": config.model.max_context_tokens,
    }
