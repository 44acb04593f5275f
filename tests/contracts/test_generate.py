"""Greedy answers in batches: real `generate`, on a policy that has learnt a few answers by heart
and on one whose tokens are dictated."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
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

from benchmarks import eval_throughput
from subtext.answer import FINAL_CLOSE, format_answer
from subtext.evaluation.answer_cache import Answer, AnswerCache
from subtext.evaluation.generate import Messages, generate_answers

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
    /,
    batch_size: int = 8,
    max_new_tokens: int = LIMIT,
    **cached: Any,
) -> list[Answer]:
    """Answers in the order of `conversations`, each exactly once."""
    batches = generate_answers(
        *policy, conversations, max_new_tokens=max_new_tokens, batch_size=batch_size, **cached
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
        # Equally long prompts stand in the batch by their text.
        prompts = [asked(letter) for letter in "abc"[: len(scripts)]]
        return answers_of(policy, prompts, max_new_tokens=limit)


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
        prompt = policy[1].apply_chat_template(asked("a"), add_generation_prompt=True)
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


@pytest.fixture
def prompts_seen(taught: Policy, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The prompts of every call of `generate`, as they come."""
    model, tokenizer = taught
    seen: list[list[str]] = []
    generate = model.generate

    def noted(**arguments: Any) -> Any:
        seen.append(tokenizer.batch_decode(arguments["input_ids"], skip_special_tokens=True))
        return generate(**arguments)

    monkeypatch.setattr(model, "generate", noted)
    return seen


class TestBatches:
    def test_order_of_the_questions_changes_no_batch(
        self, taught: Policy, prompts_seen: list[list[str]]
    ) -> None:
        questions = [asked(text) for text in ("Yes.", "Hm.", "Oh.", "Thank you.", "No.")]
        answers_of(taught, questions, batch_size=2, max_new_tokens=1)
        first = prompts_seen.copy()
        answers_of(taught, questions[::-1], batch_size=2, max_new_tokens=1)
        assert prompts_seen == first * 2
        assert [len(batch) for batch in first] == [2, 2, 1]

    def test_equal_questions_are_answered_once(
        self, taught: Policy, prompts_seen: list[list[str]]
    ) -> None:
        answers = answers_of(taught, [asked("Hm.")] * 3 + [asked("Thank you.")])
        assert len(prompts_seen[0]) == 2
        assert [answer.text for answer in answers] == [LESSONS[0][1]] * 3 + [LESSONS[2][1]]


SYSTEM = {"role": "system", "content": "Judge whether a spoken line is sarcastic or sincere."}


class TestSharedPrefix:
    """What all prompts of a batch begin with is read once, as one row, and changes no answer."""

    def test_it_is_read_once(self, untaught: Policy) -> None:
        model, tokenizer = untaught
        shapes: list[tuple[int, ...]] = []
        model.register_forward_pre_hook(
            lambda _module, _args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)),
            with_kwargs=True,
        )
        texts = ["Yes, she is.", "Yes, he is not."]
        answers_of(untaught, [[SYSTEM, *asked(text)] for text in texts], max_new_tokens=1)
        one, other = [
            tokenizer.apply_chat_template(
                [SYSTEM, *asked(text)], add_generation_prompt=True, tokenize=True
            )["input_ids"]
            for text in texts
        ]
        n_shared = next(n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
        longest = max(len(one), len(other))
        assert shapes == [(1, n_shared), (2, longest - n_shared)]

    def test_answers_are_those_of_plain_left_padding(self, untaught: Policy) -> None:
        model, tokenizer = untaught
        questions = [[SYSTEM, *asked(text)] for text, _ in LESSONS]
        texts = [
            tokenizer.apply_chat_template(each, add_generation_prompt=True, tokenize=False)
            for each in questions
        ]
        encoded = tokenizer(
            texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False
        )
        plain = model.generate(**encoded, max_new_tokens=20, do_sample=False)
        written = tokenizer.batch_decode(
            plain[:, encoded["input_ids"].shape[1] :], skip_special_tokens=True
        )
        answers = answers_of(untaught, questions, max_new_tokens=20)
        assert [answer.text for answer in answers] == written

    def test_one_prompt_that_begins_another_keeps_a_token_of_its_own(self, taught: Policy) -> None:
        # Equal ones are asked once, so nothing but this could leave a row without a token.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(taught[1], "chat_template", "{{ messages[0].content }}")
            answers = answers_of(taught, [asked("Hm."), asked("Hm. Well")], max_new_tokens=3)
        assert [answer.n_tokens for answer in answers] == [3, 3]


class TestCache:
    @pytest.fixture
    def cache(self, tmp_path: Path) -> Iterator[AnswerCache]:
        with AnswerCache(tmp_path / "answers.sqlite") as cache:
            yield cache

    def test_known_answers_are_not_generated(
        self, taught: Policy, cache: AnswerCache, prompts_seen: list[list[str]]
    ) -> None:
        questions = [asked(text) for text, _ in LESSONS]
        plain = answers_of(taught, questions)
        assert answers_of(taught, questions, cache=cache, policy="taught") == plain
        prompts_seen.clear()
        assert answers_of(taught, questions[::-1], cache=cache, policy="taught") == plain[::-1]
        assert prompts_seen == []

    @pytest.mark.parametrize(
        ("policy", "limit", "reason"),
        [("another", LIMIT, "other weights"), ("taught", LIMIT - 1, "another limit")],
    )
    def test_what_changes_answers_is_generated_anew(
        self, taught: Policy, cache: AnswerCache, prompts_seen: list[list[str]],
        policy: str, limit: int, reason: str,
    ) -> None:  # fmt: skip
        answers_of(taught, [asked("Hm.")], cache=cache, policy="taught")
        answers_of(taught, [asked("Hm.")], max_new_tokens=limit, cache=cache, policy=policy)
        assert len(prompts_seen) == 2, reason

    def test_batch_that_lacks_an_answer_is_generated_whole_and_what_was_known_stays(
        self, taught: Policy, cache: AnswerCache, prompts_seen: list[list[str]]
    ) -> None:
        known = _dictated_answer(taught, cache)
        prompts_seen.clear()
        questions = [asked(text) for text, _ in LESSONS]
        answers = answers_of(taught, questions, cache=cache, policy="taught")
        assert [len(batch) for batch in prompts_seen] == [len(LESSONS)]
        assert answers[0] == known != Answer(LESSONS[0][1], True, known.n_tokens)
        assert [answer.text for answer in answers[1:]] == [text for _, text in LESSONS[1:]]


def _dictated_answer(policy: Policy, cache: AnswerCache) -> Answer:
    """Let `policy` say " the" to the first lesson's question, and `cache` keep it."""
    (the,) = policy[1](" the")["input_ids"]
    with pytest.MonkeyPatch.context() as patch:
        processors = LogitsProcessorList([Dictate([[the]])])
        patch.setattr(
            policy[0],
            "generate",
            functools.partial(policy[0].generate, logits_processor=processors),
        )
        (answer,) = answers_of(policy, [asked(LESSONS[0][0])], cache=cache, policy="taught")
    return answer


ASK = """
import json, sys, time
from dataclasses import astuple
from pathlib import Path
from transformers import AutoModelForCausalLM, AutoTokenizer
from subtext.evaluation.answer_cache import AnswerCache
from subtext.evaluation.generate import generate_answers

folder, cache_path, questions, hang_at = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder)
generate, n_calls = model.generate, 0

def counted(**arguments):
    global n_calls
    n_calls += 1
    output = generate(**arguments)
    print("generated", n_calls, flush=True)
    if n_calls == int(hang_at):
        time.sleep(600)
    return output

model.generate = counted
with AnswerCache(Path(cache_path)) as cache:
    batches = generate_answers(
        model, AutoTokenizer.from_pretrained(folder), json.loads(questions),
        max_new_tokens=60, batch_size=2, cache=cache, policy="taught",
    )
    pairs = sorted((index, *astuple(answer)) for batch in batches for index, answer in batch)
    print(json.dumps(pairs))
"""


class TestKilled:
    @pytest.fixture
    def ask(self, taught: Policy, tmp_path: Path) -> Callable[[str, int], subprocess.Popen[str]]:
        texts = [text for text, _ in LESSONS] + ["Yes.", "No.", "Well, well.", "Oh!"]
        questions = json.dumps([asked(text) for text in texts])

        def start(cache: str, hang_at: int) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", ASK, taught[0].name_or_path, str(tmp_path / cache)]
            return subprocess.Popen(
                [*command, questions, str(hang_at)], stdout=subprocess.PIPE, text=True
            )

        return start

    def test_restarted_evaluation_generates_the_rest_and_gives_the_same_answers(
        self, ask: Callable[[str, int], subprocess.Popen[str]]
    ) -> None:
        *calls, unbroken = _lines(ask("unbroken", 0))
        assert len(calls) == 4

        killed = ask("killed", 3)
        assert killed.stdout is not None
        for line in killed.stdout:
            if line == "generated 3\n":
                killed.send_signal(signal.SIGKILL)
        assert killed.wait(timeout=60) == -signal.SIGKILL

        *calls, restarted = _lines(ask("killed", 0))
        assert len(calls) == 2
        assert restarted == unbroken
        assert _lines(ask("killed", 0)) == [unbroken]


def _lines(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return output.splitlines()


def test_base_without_padding_side_is_padded_on_the_left(taught: Policy, tmp_path: Path) -> None:
    model, tokenizer = taught
    tokenizer.save_pretrained(tmp_path)
    right = AutoTokenizer.from_pretrained(tmp_path, padding_side="right")
    answers = answers_of((model, right), [asked(text) for text, _ in LESSONS])
    assert [answer.text for answer in answers] == [answer for _, answer in LESSONS]


def test_benchmark_compares_equal_answers(taught: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = taught
    # The seed's loop lets no end token stop the model; put back afterwards.
    ends = model.generation_config.eos_token_id
    monkeypatch.setattr(model.generation_config, "eos_token_id", ends)
    questions = [asked(text) for text, _ in LESSONS]
    ours = eval_throughput.batched(model, tokenizer, questions, LIMIT)
    seeds = eval_throughput.one_at_a_time(model, tokenizer, questions, LIMIT)
    assert seeds.texts == ours.texts == [answer for _, answer in LESSONS]
    assert seeds.n_tokens == ours.n_tokens
    assert 0 < seeds.to_own_end_s < seeds.seconds
    assert eval_throughput.labels_of(ours) == ["sarcastic", "sarcastic", "sincere", None]
