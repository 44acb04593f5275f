"""The memory estimate: its formulas against hand-counted numbers, and which way each knob pulls."""

from __future__ import annotations

from typing import Any

import pytest

from subtext.plan.memory import MemoryEstimate, estimate_memory, layer_bytes_a_token, savings
from subtext.plan.shape import ModelShape, shape_of
from subtext.policy.precision import Precision
from subtext.profiles import resolve

TINY = {
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000,
    "tie_word_embeddings": True, "max_position_embeddings": 4096,
}  # fmt: skip
SMOLLM2 = {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "vocab_size": 49152,
    "tie_word_embeddings": True, "max_position_embeddings": 8192,
}  # fmt: skip
QWEN_3B = {
    "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
    "num_attention_heads": 16, "num_key_value_heads": 2, "vocab_size": 151936,
    "tie_word_embeddings": True, "max_position_embeddings": 32768,
}  # fmt: skip
CPU32 = Precision("cpu", "float32", "none", ())
CPU16 = Precision("cpu", "bfloat16", "none", ())
GPU4 = Precision("cuda", "float16", "nf4", ())


def shape(config: dict[str, Any]) -> ModelShape:
    read = shape_of(config)
    assert read is not None
    return read


def part(estimate: MemoryEstimate, name: str, phase: str) -> int:
    [found] = [p.n_bytes for p in estimate.parts if (p.name, p.phase) == (name, phase)]
    return found


@pytest.mark.parametrize(
    ("config", "millions"),
    [
        pytest.param(SMOLLM2, 134.5, id="SmolLM2-135M, as published"),
        pytest.param(QWEN_3B, 3085.9, id="Qwen2.5-3B, as published: 3.09 B, without its biases"),
        pytest.param(TINY | {"tie_word_embeddings": False}, 0.748, id="an output layer of its own"),
    ],
)
def test_parameters_follow_from_the_shape(config: dict[str, Any], millions: float) -> None:
    assert shape(config).parameters / 1e6 == pytest.approx(millions, rel=2e-3)


def test_adapter_parameters_are_those_that_peft_makes() -> None:
    modules = ("q_proj", "k_proj", "v_proj", "o_proj")
    # rank x (in + out): q and o 576 + 576, k and v 576 + 192, in 30 layers
    assert shape(SMOLLM2).adapter_parameters(16, modules) == 30 * 16 * (2 * 1152 + 2 * 768)
    assert shape(SMOLLM2).adapter_parameters(16, ("q_proj", "no_such_layer")) == 30 * 16 * 1152


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"hidden_size": 8}, id="too little said"),
        pytest.param(TINY | {"num_experts": 8}, id="experts"),
        pytest.param(TINY | {"vocab_size": None}, id="null"),
    ],
)
def test_another_build_has_no_shape(config: dict[str, Any]) -> None:
    assert shape_of(config) is None


@pytest.mark.parametrize(
    ("config", "knobs", "precision", "row_tokens", "n_bytes"),
    [
        # Measured once with torch.autograd.graph.saved_tensors_hooks on the loaded models.
        pytest.param(TINY, {}, CPU32, 300, 11218, id="float32, inputs shared"),
        pytest.param(
            SMOLLM2, {"lora": {"r": 16, "dropout": 0.05, "target_modules": [
                "q_proj", "k_proj", "v_proj", "o_proj"]}},
            CPU16, 200, 32751, id="bf16 with dropout's noise",
        ),
    ],
)  # fmt: skip
def test_what_a_layer_keeps_is_what_autograd_saves(
    config: dict[str, Any],
    knobs: dict[str, Any],
    precision: Precision,
    row_tokens: int,
    n_bytes: int,
) -> None:
    counted = layer_bytes_a_token(shape(config), resolve("demo", knobs), precision, row_tokens)
    assert counted == pytest.approx(n_bytes, rel=0.005)


def test_the_parts_of_a_4_bit_gpu_run_are_those_counted_by_hand() -> None:
    """Qwen2.5-3B, 4 x 768 tokens, prompts of 600: ../shared/facts/trl.md, section 11."""
    estimate = estimate_memory(shape(QWEN_3B), resolve("t4"), GPU4, 600)
    assert part(estimate, "weights", "") / 1e9 == pytest.approx(2.05, rel=0.03)
    assert part(estimate, "KV cache", "generate") / 1e9 == pytest.approx(0.20, rel=0.05)
    adapter = part(estimate, "adapter, gradients, optimiser", "")
    assert adapter == 36 * 16 * (2 * 4096 + 2 * (2048 + 256)) * 16
    assert estimate.needed_bytes < 6e9, "about 5 to 6 GB"
    fixed = sum(p.n_bytes for p in estimate.parts if not p.phase)
    assert estimate.needed_bytes == fixed + max(estimate.phases.values())


@pytest.mark.parametrize(
    ("profile", "knobs"),
    [
        ("demo", {"training": {"per_device_train_batch_size": 32,
                               "gradient_accumulation_steps": 2}}),
        ("demo", {"grpo": {"max_completion_length": 64}}),
        ("demo", {"training": {"gradient_checkpointing": True}}),
        ("demo", {"lora": {"r": 8, "alpha": 8}}),
    ],
    ids=["batch", "length", "checkpointing", "rank"],
)  # fmt: skip
def test_a_smaller_knob_needs_less(profile: str, knobs: dict[str, Any]) -> None:
    before = estimate_memory(shape(TINY), resolve(profile), CPU32, 300)
    after = estimate_memory(shape(TINY), resolve(profile, knobs), CPU32, 300)
    assert after.needed_bytes < before.needed_bytes


def test_a_longer_prompt_and_a_reference_adapter_need_more() -> None:
    config = resolve("demo")
    short = estimate_memory(shape(TINY), config, CPU32, 100).needed_bytes
    assert estimate_memory(shape(TINY), config, CPU32, 400).needed_bytes > short
    with_reference = resolve("demo", {"grpo": {"beta": 0.1}})
    assert estimate_memory(shape(TINY), with_reference, CPU32, 100).needed_bytes > short


def test_each_knob_that_is_named_saves_what_is_said() -> None:
    config = resolve("demo")
    before = estimate_memory(shape(TINY), config, CPU32, 300).needed_bytes
    named = dict(savings(shape(TINY), config, CPU32, 300))
    assert named
    for knobs, saved in named.items():
        changes: dict[str, Any] = {}
        for knob in knobs.split():
            path, value = knob.split("=")
            section, name = path.split(".")
            changes.setdefault(section, {})[name] = value
        turned = resolve("demo", changes)
        after = estimate_memory(shape(TINY), turned, CPU32, 300).needed_bytes
        assert saved == before - after > 0
