"""Prompts against context windows, and chat templates that would spoil training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subtext.policy.chat_template import template_problems
from subtext.policy.prompt_lengths import context_problems
from subtext.profiles import resolve

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
OPENING = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoTokenizer

    from subtext.policy.tiny import build_tiny

    return AutoTokenizer.from_pretrained(build_tiny(tmp_path_factory.mktemp("tiny")))


@pytest.mark.parametrize(
    ("template", "warm_start", "said"),
    [
        pytest.param(CHATML, True, None, id="ChatML"),
        pytest.param(
            CHATML.replace("assistant\n' }}{% endif", "assistant\n<think>\n' }}{% endif"), False,
            "opens <think>", id="opens a thought",
        ),
        pytest.param(
            CHATML.replace(
                "assistant\n' }}{% endif", "assistant\n<think>\n\n</think>\n\n' }}{% endif"
            ),
            False, None, id="opens and closes a thought, as Qwen3 without thinking",
        ),
        pytest.param(None, False, "has none", id="no template"),
        pytest.param(
            CHATML.replace("in messages %}", "in messages if m.role != 'system' %}"),
            False, "drops the system", id="no system message",
        ),
        pytest.param(
            "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}"
            "{% endif %}" + CHATML,
            False, "no system role", id="refuses a system message",
        ),
        pytest.param(CHATML.replace(OPENING, ""), False, "does not open", id="no opening"),
        pytest.param(
            CHATML.replace("m['content']", "m['content'].split('</think>')[-1]"), True,
            "warm start would teach another", id="strips the thought",
        ),
        pytest.param(
            CHATML.replace("m['content']", "m['content'].split('</think>')[-1]"), False, None,
            id="strips the thought, where nothing is taught with it",
        ),
        pytest.param("{{ broken", False, "can't render", id="no Jinja"),
    ],
)  # fmt: skip
def test_chat_template(
    tokenizer: Any, template: str | None, warm_start: bool, said: str | None
) -> None:
    tokenizer.chat_template = template
    problems = list(template_problems(tokenizer, "ada/model", warm_start=warm_start))
    assert len(problems) == (said is not None)
    assert all(said and said in problem.problem and problem.remedy for problem in problems)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qwen2_5", None), ("qwen3", None), ("deepseek_r1_distill", "opens <think>"),
        ("gemma", "system"),
    ],
)  # fmt: skip
def test_templates_in_use(tokenizer: Any, name: str, said: str | None) -> None:
    """Those that TRL carries, word for word as their models have them."""
    import trl

    path = Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja"
    tokenizer.chat_template = path.read_text("utf-8")
    problems = list(template_problems(tokenizer, name, warm_start=True))
    assert [said in problem.problem for problem in problems if said] == [True] * bool(said)
    assert bool(problems) == (said is not None)


@pytest.mark.parametrize(
    ("longest", "max_positions", "field", "said"),
    [
        pytest.param(1408, 4096, None, "", id="fits to the token"),
        pytest.param(1409, 4096, "model.max_context_tokens", "Set it to 1537", id="one too many"),
        pytest.param(1408, 1535, "model.name", "reads 1535 tokens", id="more than the model reads"),
        pytest.param(1408, None, None, "", id="a model that does not say how far it reads"),
    ],
)
def test_context(longest: int, max_positions: int | None, field: str | None, said: str) -> None:
    config = resolve("demo")
    assert (config.model.max_context_tokens, config.grpo.max_completion_length) == (1536, 128)
    problems = list(context_problems({"a": 10, "b": longest}, config, max_positions))
    assert [problem.field for problem in problems] == ([field] if field else [])
    assert all("clip b" in problem.problem and said in str(problem) for problem in problems)
