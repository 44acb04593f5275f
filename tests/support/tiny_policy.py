"""A Qwen2-shaped policy of a fraction of a million parameters, with a tokenizer of its own.

Made in a second, saved as a folder that `model.source=path` loads. Untrained it answers noise;
`pretrain` teaches all its weights, for tests that need a policy with something to sharpen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support.corpus import write_corpus

_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' "
    "+ message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_VOCABULARY = 700


def build_tiny_policy(folder: Path, seed: int = 0) -> Path:
    """Write an untrained policy to `folder` and return it; the same bytes for the same seed."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = _tokenizer(folder)
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def pretrain(folder: Path, examples: Sequence[dict[str, Any]], steps: int, seed: int = 0) -> None:
    """Train every weight of the policy in `folder` on prompt-completion `examples`, in place."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    batches = _batches(tokenizer, examples, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**next(batches)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.save_pretrained(folder)


def _tokenizer(folder: Path) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=["<|pad|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(_texts(folder), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<|pad|>", eos_token="<|im_end|>", padding_side="left"
    )
    tokenizer.chat_template = _CHATML
    return tokenizer


def _texts(folder: Path) -> Iterator[str]:
    """Prompts and teacher's answers over a generated corpus."""
    from subtext.config import PromptConfig
    from subtext.data.scenarios import load_scenarios
    from subtext.policy.warm_start import teacher_answer
    from subtext.prompts import build_messages

    scenarios = load_scenarios(write_corpus(folder / "tokenizer-corpus"))
    for clip_id, clip in scenarios.items():
        for message in build_messages(clip_id, scenarios, PromptConfig()):
            yield message["content"]
        for seed in range(4):
            label = ("sarcastic", "sincere")[seed % 2]
            yield teacher_answer(clip_id, clip["prosody"], label, seed)


def _batches(
    tokenizer: Any, examples: Sequence[dict[str, Any]], seed: int
) -> Iterator[dict[str, Any]]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    rows = [_tokens(tokenizer, example) for example in examples]
    while True:
        chosen = [rows[int(i)] for i in torch.randint(len(rows), (16,), generator=generator)]
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
