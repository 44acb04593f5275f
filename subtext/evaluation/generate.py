"""Greedy answers in batches: sorted by length, padded on the left, stopped after the answer.

Generation of one answer stops one token after `</final>`: that token says whether the model
ended there by itself (an end token) or would have gone on.

How prompts are batched changes the last digits of the logits, and so, rarely, an answer. Batches
therefore follow from the set of prompts alone, whatever their order, and a batch of which the
cache lacks one answer is generated whole: an evaluation that was killed and started again ends
with the answers of one that was not.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from subtext import strict_json
from subtext.answer import FINAL_CLOSE
from subtext.evaluation.answer_cache import Answer, AnswerCache
from subtext.policy.load import CHAT_TEMPLATE_OPTIONS

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Messages = list[dict[str, str]]

_ENGINE = 1
"""Counts changes to this module after which answers kept in a cache no longer hold."""


def generate_answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    conversations: Sequence[Messages],
    *,
    max_new_tokens: int,
    batch_size: int,
    cache: AnswerCache | None = None,
    policy: str = "",
) -> Iterator[list[tuple[int, Answer]]]:
    """Yield one list a batch of (index into `conversations`, answer), longest prompts first.

    Longest first, so that a batch too large for the memory fails at once. Equal conversations are
    answered once. `cache` gives the answers that `policy` (its digest) gave before and keeps new
    ones. Raises EvaluationError where the cache's file can't be read or written.
    """
    asked_by: dict[str, list[int]] = defaultdict(list)
    for index, messages in enumerate(conversations):
        text = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False, **CHAT_TEMPLATE_OPTIONS
        )
        asked_by[text].append(index)
    order = sorted(asked_by, key=lambda text: (-len(text), text))
    for start in range(0, len(order), batch_size):
        texts = order[start : start + batch_size]
        generate = functools.partial(_generate, model, tokenizer, texts, max_new_tokens)
        if cache:
            keys = [_key(policy, text, max_new_tokens) for text in texts]
            answers = cache.recall(keys, generate)
        else:
            answers = generate()
        yield [
            (index, answer)
            for text, answer in zip(texts, answers, strict=True)
            for index in asked_by[text]
        ]


def _key(policy: str, prompt: str, max_new_tokens: int) -> str:
    """Digest of all that an answer depends on, but for the last digits of its logits."""
    import torch
    import transformers

    decoding = {
        "engine": _ENGINE,
        "greedy": True,
        "max_new_tokens": max_new_tokens,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    return strict_json.digest({"policy": policy, "prompt": prompt, "decoding": decoding})


def _generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    max_new_tokens: int,
) -> list[Answer]:
    import torch
    from transformers import StoppingCriteriaList

    # The chat template has written the special tokens already.
    prompts: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
    shared = _shared_prefix(prompts)
    encoded = _padded_behind(shared, prompts, tokenizer, model.device)
    prompt_length = encoded["input_ids"].shape[1]
    stop = _StopAfterAnswer(tokenizer, prompt_length, len(texts))
    with torch.inference_mode():
        output = model.generate(
            **encoded,
            cache=_read(model, encoded["input_ids"][:1, : len(shared)], len(texts)),
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


def _shared_prefix(prompts: list[list[int]]) -> list[int]:
    """Return the tokens that all begin with; each keeps one of its own at least."""
    columns = zip(*(prompt[:-1] for prompt in prompts), strict=False)
    same = itertools.takewhile(lambda column: len(set(column)) == 1, columns)
    return [column[0] for column in same]


def _padded_behind(
    shared: list[int], prompts: list[list[int]], tokenizer: Any, device: Any
) -> dict[str, torch.Tensor]:
    """Return rows of `shared`, padding, then what each prompt has of its own."""
    import torch

    own = tokenizer.pad(
        {"input_ids": [prompt[len(shared) :] for prompt in prompts]},
        padding_side="left", return_tensors="pt",
    )  # fmt: skip
    first = torch.tensor(shared, dtype=torch.long).expand(len(prompts), -1)
    return {
        "input_ids": torch.cat([first, own["input_ids"]], dim=1).to(device),
        "attention_mask": torch.cat([torch.ones_like(first), own["attention_mask"]], 1).to(device),
    }


def _read(model: Any, shared: torch.Tensor, n_rows: int) -> Any:
    """Return the keys and values of the one row `shared` as those of `n_rows` equal rows.

    A system prompt that all prompts begin with is so read once a batch and not once a row.
    """
    if not shared.shape[1]:
        return None
    cache = model(input_ids=shared, use_cache=True, logits_to_keep=1).cache
    cache.batch_repeat_interleave(n_rows)
    return cache


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
