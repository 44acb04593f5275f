"""`python -m subtext.policy.tiny`: train the tiny policy's tokenizer again."""

from __future__ import annotations

from collections.abc import Iterator

from subtext.config import PromptConfig
from subtext.data.scenarios import load_scenarios
from subtext.policy.tiny import TOKENIZER, train_tokenizer
from subtext.policy.warm_start import teacher_answer
from subtext.prompts import build_messages

_ANSWERS_A_CLIP = 4


def texts() -> Iterator[str]:
    """Every prompt of the demo corpus as the demo profile prints it, and some teacher's answers."""
    scenarios = load_scenarios("data/demo")
    for clip_id, clip in scenarios.items():
        for message in build_messages(clip_id, scenarios, PromptConfig()):
            yield message["content"]
        for seed in range(_ANSWERS_A_CLIP):
            label = ("sarcastic", "sincere")[seed % 2]
            yield teacher_answer(clip_id, clip["prosody"], label, seed)


if __name__ == "__main__":
    TOKENIZER.write_text(train_tokenizer(texts()).to_str(pretty=True) + "\n", encoding="utf-8")
    print(f"{TOKENIZER.name}: {TOKENIZER.stat().st_size} bytes")
