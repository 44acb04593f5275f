"""Training moves what it is asked to move: the reward of a tiny policy up, and with the reward's
sign flipped, down.

The policy is warm-started, with all its weights, on answers of which half lack the final block,
so about half of what it samples is well-formed. From there GRPO has to go one way or the other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.corpus import write_corpus
from support.tiny_policy import build_tiny_policy, pretrain

from subtext import strict_json
from subtext.answer import FINAL_OPEN, format_answer
from subtext.policy.train import train_policy, training_rows
from subtext.prepare import prepare_run
from subtext.rewards import reward_decomposition, seed_reward
from subtext.run_dir import RunDir, load_config

pytestmark = pytest.mark.slow

LONGEST = 60
STEPS = 14
LAST = 5
REASONS = {
    "sarcastic": "The words are too cheerful for what happened, so I hear irony in them.",
    "sincere": "The words fit what happened before, so I take them at face value.",
}


def prepared(home: Path, run_id: str) -> RunDir:
    overrides = {
        "data": {"root": "corpus", "n_train_rows": 64},
        "model": {"source": "path", "name": str(home / "base")},
        "lora": {"r": 16, "alpha": 32},
        "warm_start": {"steps": 0},
        "grpo": {
            "max_steps": STEPS,
            "num_generations": 8,
            "max_completion_length": LONGEST,
            "learning_rate": 1e-3,
            "scale_rewards": "none",
        },
        "training": {
            "per_device_train_batch_size": 32,
            "lr_scheduler_type": "constant",
            "save_steps": STEPS,
            "num_threads": 1,
        },
    }
    return prepare_run("demo", overrides, default_run_id=run_id)


def examples(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Eight answers a row, of which about half stop before the final block."""
    rng = random.Random(0)
    made = []
    for row in rows * 8:
        answer = format_answer(REASONS[row["gold"]], row["gold"], rng.choice((0.6, 0.75, 0.9)))
        if rng.random() < 0.55:
            answer = answer[: answer.index(FINAL_OPEN)].rstrip()
        completion = [{"role": "assistant", "content": answer}]
        made.append({"prompt": row["prompt"], "completion": completion})
    return made


def sampled_scores(base: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Scores of two answers a row, sampled as GRPO samples, without GRPO's trainer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(base)
    prompts = tokenizer.apply_chat_template(
        [row["prompt"] for row in rows], add_generation_prompt=True, return_tensors="pt",
        return_dict=True, padding=True,
    )  # fmt: skip
    output = model.generate(
        **prompts, max_new_tokens=LONGEST, do_sample=True, top_k=0, num_return_sequences=2
    )
    texts = tokenizer.batch_decode(
        output[:, prompts["input_ids"].shape[1] :], skip_special_tokens=True
    )
    golds = [row["gold"] for row in rows for _ in range(2)]
    return [reward_decomposition(text, gold) for text, gold in zip(texts, golds, strict=True)]


class Start:
    """The warm-started policy: where it lies, and the mean reward of what it samples."""

    def __init__(self, home: Path) -> None:
        self.home = home
        base = build_tiny_policy(home / "base")
        run = prepared(home, "start")
        _, rows = training_rows(run, load_config(run))
        pretrain(base, examples(rows), steps=45)
        scores = sampled_scores(base, rows)
        self.reward = sum(score["_total"] for score in scores) / len(scores)
        self.well_formed = sum(score["_well_formed"] for score in scores) / len(scores)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    import torch

    home = tmp_path_factory.mktemp("learning")
    write_corpus(home / "corpus", with_prosody=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBTEXT_HOME", str(home))
        yield Start(home)
    torch.set_num_threads(threads)


def mean_of_last_steps(run: RunDir, name: str) -> float:
    history = strict_json.read(run.log_history)
    values = [record[name] for record in history if "reward" in record]
    assert len(values) == STEPS
    return float(sum(values[-LAST:]) / LAST)


def test_warm_start_leaves_something_to_learn_either_way(start: Start) -> None:
    assert 0.3 <= start.well_formed <= 0.7


def test_reward_rises(start: Start) -> None:
    run = prepared(start.home, "up")
    train_policy(run)
    # A step's mean of 32 rewards has a standard error of 0.07, that of five steps 0.03.
    assert mean_of_last_steps(run, "reward") > start.reward + 0.15
    assert mean_of_last_steps(run, "well_formed") > 0.8


def test_reward_falls_where_its_sign_is_flipped(start: Start) -> None:
    run = prepared(start.home, "down")
    train_policy(run, reward=lambda **columns: [-reward for reward in seed_reward(**columns)])
    # The trainer logs what it was given: the negative.
    assert -mean_of_last_steps(run, "reward") < start.reward - 0.15
    assert mean_of_last_steps(run, "well_formed") < 0.2
