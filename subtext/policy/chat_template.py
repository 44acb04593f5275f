"""Whether a tokenizer's chat template carries what Subtext says to a model, and its answers.

A template that opens `<think>` itself leaves the answer without its opening tag, so that the format
is never rewarded; one that drops the system message drops the task; one that rewrites `<think>` in
an answer teaches the warm start another grammar than the reward reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from subtext.answer import THINK_CLOSE, THINK_OPEN, format_answer, parse_final, reasoning_text
from subtext.errors import Problem
from subtext.policy.load import CHAT_TEMPLATE_OPTIONS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SYSTEM, _USER = "You judge one line of dialogue.", "LINE: Oh, how very lovely."
_QUESTION = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _USER}]
_ANSWER = format_answer("The voice is flat.", "sarcastic", 0.8)
_OTHER = "Choose a model whose chat template takes a system message, such as Qwen2.5-Instruct."


def template_problems(
    tokenizer: PreTrainedTokenizerBase, model: str, *, warm_start: bool
) -> Iterator[Problem]:
    """Yield what is wrong with the template of `tokenizer`, which belongs to `model`.

    Only a `warm_start` renders answers with it; GRPO reads them as they were generated.
    """
    if fault := _fault(tokenizer, warm_start):
        yield Problem("chat template", "model.name", model, *fault)


def _fault(tokenizer: PreTrainedTokenizerBase, warm_start: bool) -> tuple[str, str] | None:
    from jinja2 import TemplateError

    if not tokenizer.chat_template:
        return "has none", "Choose an instruction-tuned model, whose tokenizer has one."
    try:
        asked, opened, answered = _renderings(tokenizer)
    except (TemplateError, ValueError) as error:
        return f"can't render a system and a user message: {error}", _OTHER
    return _fault_of_question(asked, opened) or (_fault_of_answer(answered) if warm_start else None)


def _fault_of_question(asked: str, opened: str) -> tuple[str, str] | None:
    if _SYSTEM not in asked or _USER not in asked:
        return "drops the system or the user message", _OTHER
    opening = opened.removeprefix(asked)
    if THINK_OPEN in opening and THINK_CLOSE not in opening:
        return (
            f"opens {THINK_OPEN} before the answer, which then lacks the tag that is rewarded",
            "Choose a model that is not made to think, or one whose template knows "
            "enable_thinking=False.",
        )
    if not opening:
        return (
            "does not open the answer (add_generation_prompt changes nothing)",
            "Choose a model whose chat template opens the assistant's turn.",
        )
    return None


def _fault_of_answer(answered: str) -> tuple[str, str] | None:
    if _read(answered) == _read(_ANSWER):
        return None
    return (
        f"changes an answer that holds {THINK_OPEN}, so that the warm start would teach another",
        "Choose a model whose template leaves an assistant's message as it is, or set "
        "warm_start.steps=0.",
    )


def _renderings(tokenizer: PreTrainedTokenizerBase) -> tuple[str, str, str]:
    """The question alone, with the answer opened, and with the answer."""
    answer = {"role": "assistant", "content": _ANSWER}

    def render(messages: list[dict[str, str]], opened: bool) -> str:
        return str(
            tokenizer.apply_chat_template(
                messages, add_generation_prompt=opened, tokenize=False, **CHAT_TEMPLATE_OPTIONS
            )
        )

    return render(_QUESTION, False), render(_QUESTION, True), render([*_QUESTION, answer], False)


def _read(text: str) -> tuple[object, ...]:
    return reasoning_text(text), *parse_final(text)
