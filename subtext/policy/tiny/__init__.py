"""A policy of a fraction of a million parameters, for machines and minutes that hold no more.

Qwen2's shape with random weights, the same for everyone, and a tokenizer of its own in
`tokenizer.json`. It knows nothing until a warm start teaches its adapter to speak; then GRPO has
something to sharpen. Judging by it says nothing about sarcasm in the wild.

The tokenizer is trained on the demo corpus and the teacher's answers; after a change of either:

    python -m subtext.policy.tiny
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

TOKENIZER = Path(__file__).parent / "tokenizer.json"
VOCABULARY = 1000

_PAD, _START, _END = "<|pad|>", "<|im_start|>", "<|im_end|>"
_SEED = 0
# ChatML, as Qwen2 and SmolLM2 speak it.
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' "
    "+ message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Embeddings stay as they are drawn, and so does the tied output layer. A wider spread than the
# usual 0.02 lets the adapter reach confident predictions.
_INITIALIZER_RANGE = 0.2


def build_tiny(folder: Path) -> Path:
    """Write model and tokenizer to `folder` and return it; the same weights every time."""
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(TOKENIZER),
        pad_token=_PAD,
        eos_token=_END,
        unk_token=_PAD,  # unused; without it Qwen2's own is added, which has no embedding
        padding_side="left",
    )
    tokenizer.chat_template = _TEMPLATE
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        initializer_range=_INITIALIZER_RANGE,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def train_tokenizer(texts: Iterable[str]) -> Any:
    """Return a byte-level BPE tokenizer of `VOCABULARY` tokens (`tokenizers.Tokenizer`)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer

    # transformers loads the tokenizer of a Qwen2 model as Qwen2's, which splits text its own way.
    qwen2 = Qwen2Tokenizer().backend_tokenizer
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = qwen2.normalizer
    tokenizer.pre_tokenizer = qwen2.pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[_PAD, _START, _END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
