"""The documents name flags and fields that exist."""

import re
from pathlib import Path

import pytest

from subtext.config import RunConfig
from subtext.profiles import resolve

DOCS = Path(__file__).resolve().parents[2] / "docs"
SEED_FLAGS = """--model --output-dir --max-steps --num-generations --per-device-batch-size
--learning-rate --max-completion-length --lora-r --seq-length --n-train-rows --data-root
--push-to-hub --save-trainer-state-to-hub-space --eval-ratio --n-eval-clips --lora-dropout"""
SEED_DEFAULTS = {
    "grpo.max_steps": 200,
    "grpo.num_generations": 4,
    "training.per_device_train_batch_size": 1,
    "grpo.learning_rate": 5e-6,
    "grpo.max_completion_length": 768,
    "lora.r": 16,
    "lora.dropout": 0.05,
    "model.max_context_tokens": 4096,
    "data.n_train_rows": 600,
    "data.eval_ratio": 0.2,
    "evaluation.n_eval_clips": 80,
    "training.save_steps": 50,
    "training.save_total_limit": 4,
}


def test_every_flag_of_the_seed_has_a_row():
    text = (DOCS / "seed-flags.md").read_text("utf-8")
    rows = set(re.findall(r"^\| `(--[\w-]+)` \|", text, flags=re.MULTILINE))
    assert rows == set(SEED_FLAGS.split())


@pytest.mark.parametrize(("name", "value"), SEED_DEFAULTS.items())
def test_t4_holds_the_seeds_numbers(name, value):
    section, _, field = name.partition(".")
    assert getattr(getattr(resolve("t4"), section), field) == value


@pytest.mark.parametrize("document", ["deploy.md", "reliability.md", "seed-flags.md"])
def test_fields_that_are_named_exist(document):
    text = (DOCS / document).read_text("utf-8")
    sections = "|".join(RunConfig.model_fields)
    named = set(re.findall(rf"\b({sections})\.([a-z]\w*)\b(?!\.py|/)", text))
    known = {
        (section, field)
        for section, info in RunConfig.model_fields.items()
        for field in info.annotation.model_fields
    }
    assert named
    assert named <= known


def test_no_placeholder_is_left_in_the_readme():
    text = (DOCS.parent / "README.md").read_text("utf-8")
    assert not re.findall(r"\b(?:TODO|FIXME|XXX|[A-Z]+_OUTPUT)\b", text)


def test_every_test_that_is_named_exists():
    text = (DOCS / "reliability.md").read_text("utf-8")
    named = set(re.findall(r"\b(?:unit|contracts|orchestration|e2e)/test_\w+\.py", text))
    assert named
    assert not [path for path in named if not (DOCS.parent / "tests" / path).is_file()]
