"""Greedy answers in batches: sorted by length, padded on the left, stopped after the answer.

Generation of one answer stops one token after `</final>`: that token says whether the model
ended there by itself (an end token) or would have gone on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from subtext.answer import FINAL_CLOSE
from subtext.policy.load import CHAT_TEMPLATE_OPTIONS

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Answer:
    """One completion. `ended`: the model closed its turn itself, before the limit and right
    after what it wrote. `n_tokens` counts generated tokens, the end token included."""

    text: str
    ended: bool
    n_tokens: int


def generate_answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    conversations: Sequence[Messages],
    *,
    max_new_tokens: int,
    batch_size: int,
) -> Iterator[list[tuple[int, Answer]]]:
    """Yield one list a batch of (index into `conversations`, answer), longest prompts first.

    Longest first, so that a batch too large for the memory fails at once.
    """
    texts = [
        tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False, **CHAT_TEMPLATE_OPTIONS
        )
        for messages in conversations
    ]
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]), reverse=True)
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        answers = _generate(model, tokenizer, [texts[index] for index in batch], max_new_tokens)
        yield list(zip(batch, answers, strict=True))


def _generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    max_new_tokens: int,
) -> list[Answer]:
    import torch
    from transformers import StoppingCriteriaList

    # The chat template has written the special tokens already.
    encoded = tokenizer(
        texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False
    ).to(model.device)
    prompt_length = encoded["input_ids"].shape[1]
    stop = _StopAfterAnswer(tokenizer, prompt_length, len(texts))
    with torch.inference_mode():
        output = model.generate(
            **encoded,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            pad_token_id=tokenizer.pad_token_id,
            stopping_criteria=StoppingCriteriaList([stop]),
        )
    ends = _end_tokens(model, tokenizer)
    rows = output[:, prompt_length:].tolist()
    return [
        _answer(tokenizer, row[:length], ends)
        for row, length in zip(rows, stop.lengths, strict=True)
    ]


class _StopAfterAnswer:
    """Stopping criterion: true for a row whose closing tag was complete one token ago.

    `lengths[row]` is the number of tokens that the row had when it stopped; what follows is
    padding, which may be the end token itself and then says nothing about the model.
    """

    def __init__(self, tokenizer: Any, prompt_length: int, n_rows: int) -> None:
        self._tokenizer = tokenizer
        self._prompt_length = prompt_length
        # A token is a byte at least, so that many hold the tag, however it is spelt.
        self._tail = len(FINAL_CLOSE)
        self._closed = [False] * n_rows
        self.lengths: list[int | None] = [None] * n_rows

    def __call__(self, input_ids: torch.LongTensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        import torch

        generated = input_ids[:, self._prompt_length :]
        tails = self._tokenizer.batch_decode(generated[:, -self._tail :])
        for row, tail in enumerate(tails):
            if self._closed[row] and self.lengths[row] is None:
                self.lengths[row] = generated.shape[1]
            self._closed[row] = self._closed[row] or FINAL_CLOSE in tail
        done = [length is not None for length in self.lengths]
        return torch.tensor(done, dtype=torch.bool, device=input_ids.device)


def _end_tokens(model: Any, tokenizer: Any) -> set[int]:
    declared = model.generation_config.eos_token_id
    ids = declared if isinstance(declared, list) else [declared]
    return {token for token in [*ids, tokenizer.eos_token_id] if token is not None}


def _answer(tokenizer: Any, tokens: list[int], ends: set[int]) -> Answer:
    n_text = next((index for index, token in enumerate(tokens) if token in ends), len(tokens))
    ended = n_text < len(tokens)
    text = tokenizer.decode(tokens[:n_text], skip_special_tokens=True)
    return Answer(text, ended, n_text + ended)
