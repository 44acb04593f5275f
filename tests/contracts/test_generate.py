"""Greedy answers in batches: real `generate`, on a policy that has learnt a few answers by heart
and on one whose tokens are dictated."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from support.tiny_policy import build_tiny_policy, pretrain
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from subtext.answer import FINAL_CLOSE, format_answer
from subtext.evaluation.generate import Answer, Messages, generate_answers

LIMIT = 60
LESSONS = [
    ("Hm.", format_answer("Flat.", "sarcastic", 0.9)),
    ("It rains again, how wonderful for our picnic.", format_answer("Rain.", "sarcastic", 0.55)),
    ("Thank you.", format_answer("Warm, even, and short.", "sincere", 0.8)),
    ("The soup looks rather lovely, and the boiler is fine too.", "I can't say."),
]

Policy = tuple[PreTrainedModel, PreTrainedTokenizerBase]


def asked(text: str) -> Messages:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """A policy that answers each lesson's question by heart."""
    folder = build_tiny_policy(tmp_path_factory.mktemp("taught"))
    examples = [
        {"prompt": asked(text), "completion": [{"role": "assistant", "content": answer}]}
        for text, answer in LESSONS
    ]
    pretrain(folder, examples, steps=60)
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def untaught(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = build_tiny_policy(tmp_path_factory.mktemp("untaught"))
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def answers_of(
    policy: Policy,
    conversations: Sequence[Messages],
    batch_size: int = 8,
    max_new_tokens: int = LIMIT,
) -> list[Answer]:
    """Answers in the order of `conversations`, each exactly once."""
    batches = generate_answers(
        *policy, conversations, max_new_tokens=max_new_tokens, batch_size=batch_size
    )
    found = [pair for batch in batches for pair in batch]
    assert sorted(index for index, _ in found) == list(range(len(conversations)))
    return [dict(found)[index] for index in range(len(conversations))]


class TestTaughtPolicy:
    @pytest.mark.parametrize("batch_size", [1, 3, 4])
    def test_batches_answer_as_single_questions_do(self, taught: Policy, batch_size: int) -> None:
        order = [2, 0, 3, 1, 1, 0]
        answers = answers_of(taught, [asked(LESSONS[i][0]) for i in order], batch_size)
        assert [answer.text for answer in answers] == [LESSONS[i][1] for i in order]
        assert all(answer.ended for answer in answers)
        assert answers[0] == answers_of(taught, [asked(LESSONS[2][0])])[0]

    def test_tokens_are_the_answer_and_its_end(self, taught: Policy) -> None:
        tokenizer = taught[1]
        answers = answers_of(taught, [asked(text) for text, _ in LESSONS])
        written = [len(tokenizer(text)["input_ids"]) for _, text in LESSONS]
        assert [answer.n_tokens for answer in answers] == [n + 1 for n in written]

    @pytest.mark.parametrize("n_tokens", [1, 5])
    def test_limit_cuts(self, taught: Policy, n_tokens: int) -> None:
        answers = answers_of(taught, [asked(t) for t, _ in LESSONS[:3]], max_new_tokens=n_tokens)
        for answer, (_, whole) in zip(answers, LESSONS[:3], strict=True):
            assert whole.startswith(answer.text)
            assert (answer.ended, answer.n_tokens) == (False, n_tokens)

    def test_longest_prompts_come_first(self, taught: Policy) -> None:
        conversations = [asked(text) for text, _ in LESSONS]
        batches = generate_answers(*taught, conversations, max_new_tokens=1, batch_size=2)
        by_length = sorted(range(4), key=lambda index: -len(LESSONS[index][0]))
        assert [[index for index, _ in batch] for batch in batches] == [
            by_length[:2],
            by_length[2:],
        ]

    def test_nothing_asked(self, taught: Policy) -> None:
        assert answers_of(taught, []) == []


class Dictate(LogitsProcessor):  # type: ignore[misc]
    """Leave each row of a batch one choice a step: its script's next token, then the last again."""

    def __init__(self, scripts: Sequence[Sequence[int]]) -> None:
        self._scripts = scripts
        self._step = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        forced = torch.full_like(scores, float("-inf"))
        for row, script in enumerate(self._scripts):
            forced[row, script[min(self._step, len(script) - 1)]] = 0
        self._step += 1
        return forced


def dictated(policy: Policy, scripts: Iterable[Sequence[int]], limit: int = LIMIT) -> list[Answer]:
    """Answers of one batch in which the rows say `scripts`, whatever the weights want."""
    model, _ = policy
    scripts = list(scripts)
    processors = LogitsProcessorList([Dictate(scripts)])
    with pytest.MonkeyPatch.context() as patch:
        generate = functools.partial(model.generate, logits_processor=processors)
        patch.setattr(model, "generate", generate)
        # Equally long prompts keep their order in the batch.
        return answers_of(policy, [asked("Hm.") for _ in scripts], max_new_tokens=limit)


class TestStopping:
    """One row after another in one batch; `x` is an ordinary token, the rambler runs to the limit,
    so every other row is padded behind its own end."""

    @pytest.fixture(params=["own-pad", "end-token-pads"])
    def policy(self, untaught: Policy, request: pytest.FixtureRequest) -> Policy:
        model, tokenizer = untaught
        if request.param == "end-token-pads":
            tokenizer.pad_token = tokenizer.eos_token
        return model, tokenizer

    @pytest.fixture
    def closed(self, policy: Policy) -> list[int]:
        ids: list[int] = policy[1](LESSONS[0][1])["input_ids"]
        return ids

    @pytest.fixture
    def x(self, policy: Policy) -> int:
        (token,) = policy[1](" the")["input_ids"]
        return int(token)

    def test_row_that_would_go_on_has_not_ended(
        self, policy: Policy, closed: list[int], x: int
    ) -> None:
        going_on, rambler = dictated(policy, [[*closed, x], [x]])
        assert going_on == Answer(LESSONS[0][1] + " the", False, len(closed) + 1)
        assert (rambler.ended, rambler.n_tokens) == (False, LIMIT)

    def test_row_that_ends_after_its_answer_has_ended(
        self, policy: Policy, closed: list[int], x: int
    ) -> None:
        end = policy[1].eos_token_id
        ended, _ = dictated(policy, [[*closed, end], [x]])
        assert ended == Answer(LESSONS[0][1], True, len(closed) + 1)

    def test_row_that_ends_without_an_answer_has_ended(self, policy: Policy, x: int) -> None:
        end = policy[1].eos_token_id
        silent, short, _ = dictated(policy, [[end], [x, x, end], [x]])
        assert silent == Answer("", True, 1)
        assert short == Answer(" the the", True, 3)

    def test_all_rows_stopped_end_the_batch(
        self, policy: Policy, closed: list[int], x: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, _ = policy
        shapes = []
        generate = model.generate
        monkeypatch.setattr(
            model, "generate", lambda **k: shapes.append((out := generate(**k)).shape) or out
        )
        first, second = dictated(policy, [[*closed, x], [x, *closed, x]])
        assert (first.n_tokens, second.n_tokens) == (len(closed) + 1, len(closed) + 2)
        prompt = policy[1].apply_chat_template(asked("Hm."), add_generation_prompt=True)
        assert shapes == [(2, len(prompt["input_ids"]) + len(closed) + 2)]

    def test_limit_right_at_the_closing_tag_says_not_ended(
        self, policy: Policy, closed: list[int]
    ) -> None:
        (answer,) = dictated(policy, [closed], limit=len(closed))
        assert answer == Answer(LESSONS[0][1], False, len(closed))

    def test_closing_tag_spelt_letter_by_letter_stops_too(self, policy: Policy, x: int) -> None:
        tokenizer = policy[1]
        letters = tokenizer.convert_tokens_to_ids(list(FINAL_CLOSE))
        assert len(letters) > len(tokenizer(FINAL_CLOSE)["input_ids"])
        (answer,) = dictated(policy, [[x, *letters, x]])
        assert answer == Answer(f" the{FINAL_CLOSE} the", False, len(letters) + 2)

    def test_closing_tag_in_the_prompt_stops_nothing(self, policy: Policy, x: int) -> None:
        text = f"Close with {FINAL_CLOSE}"
        model, _ = policy
        with pytest.MonkeyPatch.context() as patch:
            processors = LogitsProcessorList([Dictate([[x]])])
            generate: Any = functools.partial(model.generate, logits_processor=processors)
            patch.setattr(model, "generate", generate)
            (answer,) = answers_of(policy, [asked(text)], max_new_tokens=6)
        assert answer == Answer(" the" * 6, False, 6)


def test_base_without_padding_side_is_padded_on_the_left(taught: Policy, tmp_path: Path) -> None:
    model, tokenizer = taught
    tokenizer.save_pretrained(tmp_path)
    right = AutoTokenizer.from_pretrained(tmp_path, padding_side="right")
    answers = answers_of((model, right), [asked(text) for text, _ in LESSONS])
    assert [answer.text for answer in answers] == [answer for _, answer in LESSONS]
