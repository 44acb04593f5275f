"""The product's tiny policy as a folder that `model.source=path` loads, untrained or pretrained.

Untrained it answers noise; `pretrain` teaches all its weights, for tests that need a policy with
something to sharpen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from subtext.policy.tiny import build_tiny

_BATCH = 16


def build_tiny_policy(folder: Path) -> Path:
    """Write an untrained policy to `folder` and return it; the same bytes every time."""
    return build_tiny(folder)


def pretrain(
    folder: Path,
    examples: Sequence[dict[str, Any]],
    steps: int,
    seed: int = 0,
    learning_rate: float = 3e-3,
) -> None:
    """Train every weight of the policy in `folder` on prompt-completion `examples`, in place."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    batches = _batches(tokenizer, examples, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**next(batches)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.save_pretrained(folder)


def _batches(
    tokenizer: Any, examples: Sequence[dict[str, Any]], seed: int
) -> Iterator[dict[str, Any]]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    rows = [_tokens(tokenizer, example) for example in examples]
    while True:
        chosen = [rows[int(i)] for i in torch.randint(len(rows), (_BATCH,), generator=generator)]
        longest = max(len(ids) for ids, _ in chosen)
        padded = [longest - len(ids) for ids, _ in chosen]
        pad = tokenizer.pad_token_id
        yield {
            "input_ids": torch.tensor(
                [ids + [pad] * n for (ids, _), n in zip(chosen, padded, strict=True)]
            ),
            "attention_mask": torch.tensor(
                [[1] * len(ids) + [0] * n for (ids, _), n in zip(chosen, padded, strict=True)]
            ),
            "labels": torch.tensor(
                [labels + [-100] * n for (_, labels), n in zip(chosen, padded, strict=True)]
            ),
        }


def _tokens(tokenizer: Any, example: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Return input ids and labels; the labels of the prompt are left out of the loss."""
    prompt = tokenizer.apply_chat_template(
        example["prompt"], add_generation_prompt=True, tokenize=False
    )
    whole = tokenizer.apply_chat_template(
        [*example["prompt"], *example["completion"]], tokenize=False
    )
    start = tokenizer(prompt)["input_ids"]
    end = tokenizer(whole[len(prompt) :])["input_ids"]
    return start + end, [-100] * len(start) + end
