"""How much memory a run takes at its fullest, by formula.

Always there:

    process      python and its libraries on a CPU; the CUDA context on a GPU
    weights      parameters x bytes; NF4: 4.127 bits a parameter of the linear layers (4 bits, and
                 an 8-bit scale a block of 64 whose own scales are quantised again: QLoRA, section
                 3), the rest in 16 bit, and the largest layer in 16 bit while it multiplies;
                 a CPU also keeps the 16-bit weights that NF4 was made from
    adapter      16 bytes a LoRA parameter: value, gradient and Adam's two moments in float32;
                 4 more for the frozen copy that grpo.beta > 0 asks for

Each phase, with B rows of T = prompt + completion tokens, L layers, b bytes a number:

    generate     keys and values: rows x T x L x kv heads x head width x 2 x b, of the whole
                 generation batch at once, and one layer's share twice while it grows; float32
                 logits of one position a row, four times over while they are sampled from
    train        kept: B x T x L x A where A is what one layer keeps of one token for its gradients
                 (`layer_bytes_a_token`); with gradient checkpointing only the layer's input,
                 B x T x L x hidden x b. On a CPU a quarter more, for the holes that its allocator
                 leaves between kept numbers (measured: 1.1 to 1.6). Beside it the larger of one
                 layer at work (its gradients; with checkpointing its recomputed values too) and
                 TRL's tiled output layer
    output tile  min(positions, 4096) x min(vocabulary, 32768) numbers: b bytes each on a GPU, where
                 only completion tokens are scored, b + 29 on a CPU, where all positions are and
                 torch holds seven float32 copies
    warm start   as train, with its own batch and answers of about 120 tokens

The fullest phase counts. `benchmarks/memory_estimate.py` holds the formulas against measured peaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from subtext.config import RunConfig
from subtext.plan.shape import ModelShape
from subtext.policy.precision import Precision

_PROCESS_BYTES = {"cpu": 660 * 2**20, "cuda": 600 * 2**20}
_NF4_BITS = 4.127
_ADAPTER_BYTES = 16
_TILE_TOKENS, _TILE_VOCABULARY = 4096, 32768  # TRL 1.16
_TILE_FLOAT32_BYTES = 29
_TEACHER_TOKENS = 120
_HOLES = {"cpu": 1.25, "cuda": 1.0}
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Part:
    """One part of the estimate: `phase` is "" for what is always there."""

    name: str
    phase: str
    n_bytes: int
    formula: str


@dataclass(frozen=True)
class MemoryEstimate:
    """The parts, and the bytes needed at the fullest moment, in the phase `fullest`."""

    parts: tuple[Part, ...]
    phases: dict[str, int]
    fullest: str
    needed_bytes: int

    def as_json(self) -> dict[str, Any]:
        return {
            "needed_bytes": self.needed_bytes,
            "fullest": self.fullest,
            "phases": self.phases,
            "parts": [
                {"name": part.name, "phase": part.phase, "bytes": part.n_bytes,
                 "formula": part.formula}
                for part in self.parts
            ],
        }  # fmt: skip


def estimate_memory(
    shape: ModelShape, config: RunConfig, precision: Precision, longest_prompt: int
) -> MemoryEstimate:
    """Estimate for prompts of up to `longest_prompt` tokens and the longest completions allowed."""
    parts = [*_always(shape, config, precision), *_phases(shape, config, precision, longest_prompt)]
    fixed = sum(part.n_bytes for part in parts if not part.phase)
    phases: dict[str, int] = {}
    for part in parts:
        if part.phase:
            phases[part.phase] = phases.get(part.phase, 0) + part.n_bytes
    fullest = max(phases, key=lambda name: phases[name])
    return MemoryEstimate(tuple(parts), phases, fullest, fixed + phases[fullest])


def layer_bytes_a_token(
    shape: ModelShape, config: RunConfig, precision: Precision, row_tokens: int
) -> int:
    """What autograd keeps of one token in one decoder layer, counted from the operations:

    two norms keep their input in float32; attention its queries, repeated keys and values, and its
    output, and a row of the mask; the MLP gate, activated gate and up; an adapted linear layer its
    input (shared by layers that read the same, in float32 without dropout), r numbers between its
    factors, and dropout's mask (float32 noise on a CPU, one byte on a GPU).
    """
    number = _BYTES[precision.dtype]
    norms = 2 * shape.hidden * 4
    attention = (4 * shape.heads * shape.head_dim + row_tokens) * number
    mlp = 3 * shape.intermediate * number
    adapted = [name for name in config.lora.target_modules if name in shape.linear_layers]
    inputs = {name: shape.linear_layers[name][0] for name in adapted}
    if number == 4 and not config.lora.dropout:
        # o_proj reads what attention keeps anyway
        read_by = {"q_proj": "x", "k_proj": "x", "v_proj": "x", "gate_proj": "y", "up_proj": "y"}
        shared = {read_by.get(name, name): width for name, width in inputs.items()}
        kept = sum(width for name, width in shared.items() if name != "o_proj") * number
    else:
        noise = {"cpu": 4, "cuda": 1}[precision.device] if config.lora.dropout else 0
        kept = sum(inputs.values()) * (number + noise)
    between = len(adapted) * config.lora.r * number
    return norms + attention + mlp + kept + between


def savings(
    shape: ModelShape, config: RunConfig, precision: Precision, longest_prompt: int
) -> Iterator[tuple[str, int]]:
    """Yield knobs that lower the estimate, as `section.field=value`, with the bytes each saves."""
    now = estimate_memory(shape, config, precision, longest_prompt).needed_bytes
    for changes in _smaller(config, precision):
        tried = config.model_copy(
            update={
                section: getattr(config, section).model_copy(update=fields)
                for section, fields in changes.items()
            }
        )
        quantization = tried.model.quantization
        as_tried = Precision(precision.device, precision.dtype, quantization, precision.reasons)
        saved = now - estimate_memory(shape, tried, as_tried, longest_prompt).needed_bytes
        if saved > 0:
            yield (
                " ".join(
                    f"{section}.{name}={str(value).lower()}"
                    for section, fields in changes.items()
                    for name, value in fields.items()
                ),
                saved,
            )


def _smaller(config: RunConfig, precision: Precision) -> Iterator[dict[str, dict[str, Any]]]:
    training = config.training
    if training.per_device_train_batch_size > 1 and training.per_device_train_batch_size % 2 == 0:
        yield {
            "training": {
                "per_device_train_batch_size": training.per_device_train_batch_size // 2,
                "gradient_accumulation_steps": training.gradient_accumulation_steps * 2,
            }
        }
    if not training.gradient_checkpointing:
        yield {"training": {"gradient_checkpointing": True}}
    if precision.quantization == "none" and precision.device == "cuda":
        yield {"model": {"quantization": "nf4"}}
    if config.grpo.max_completion_length > 1:
        yield {"grpo": {"max_completion_length": config.grpo.max_completion_length // 2}}
    if config.warm_start.steps and config.warm_start.batch_size > 1:
        yield {"warm_start": {"batch_size": config.warm_start.batch_size // 2}}
    if config.evaluation.batch_size > 1:
        yield {"evaluation": {"batch_size": config.evaluation.batch_size // 2}}


def _always(shape: ModelShape, config: RunConfig, precision: Precision) -> Iterator[Part]:
    process = {"cpu": "python with torch, transformers and TRL", "cuda": "CUDA context"}
    yield Part("process", "", _PROCESS_BYTES[precision.device], process[precision.device])
    number = _BYTES[precision.dtype]
    if precision.quantization == "nf4":
        largest = max(wide * high for wide, high in shape.linear_layers.values())
        n_bytes = round(shape.linear_parameters * _NF4_BITS / 8)
        n_bytes += (shape.other_parameters + largest) * number
        formula = (
            f"{shape.linear_parameters / 1e6:.1f} M x {_NF4_BITS} bits + "
            f"({shape.other_parameters / 1e6:.1f} M + largest layer {largest / 1e6:.1f} M) x "
            f"{number} B"
        )
        if precision.device == "cpu":
            n_bytes += shape.parameters * number
            formula += f" + {shape.parameters / 1e6:.1f} M x {number} B"
    else:
        n_bytes = shape.parameters * number
        formula = f"{shape.parameters / 1e6:.1f} M x {number} B"
    yield Part("weights", "", n_bytes, formula)
    n_adapter = shape.adapter_parameters(config.lora.r, config.lora.target_modules)
    a_parameter = _ADAPTER_BYTES + (4 if config.grpo.beta else 0)
    yield Part(
        "adapter, gradients, optimiser", "", n_adapter * a_parameter,
        f"{n_adapter / 1e6:.2f} M x {a_parameter} B",
    )  # fmt: skip


def _phases(
    shape: ModelShape, config: RunConfig, precision: Precision, longest_prompt: int
) -> Iterator[Part]:
    training, answer = config.training, config.grpo.max_completion_length
    rows = training.per_device_train_batch_size
    if config.warm_start.steps:
        yield from _pass(
            shape, config, precision, "warm start",
            config.warm_start.batch_size, longest_prompt, _TEACHER_TOKENS,
        )  # fmt: skip
    yield from _answers(
        shape, precision, "generate", rows * training.gradient_accumulation_steps,
        longest_prompt + answer,
    )  # fmt: skip
    yield from _pass(shape, config, precision, "train", rows, longest_prompt, answer)
    longest = config.evaluation.max_new_tokens or answer
    yield from _answers(
        shape, precision, "judge", config.evaluation.batch_size, longest_prompt + longest
    )


def _answers(
    shape: ModelShape, precision: Precision, phase: str, rows: int, row_tokens: int
) -> Iterator[Part]:
    number = _BYTES[precision.dtype]
    a_layer = rows * row_tokens * shape.kv_heads * shape.head_dim * 2 * number
    yield Part(
        "KV cache", phase, a_layer * (shape.layers + 1),
        f"{rows} rows x {row_tokens} tokens x {shape.layers + 1} layers x {shape.kv_heads} heads x "
        f"{shape.head_dim} x 2 x {number} B",
    )  # fmt: skip
    yield Part(
        "logits", phase, rows * shape.vocabulary * 4 * 4,
        f"{rows} rows x {shape.vocabulary} x 4 B x 4",
    )  # fmt: skip


def _pass(
    shape: ModelShape,
    config: RunConfig,
    precision: Precision,
    phase: str,
    rows: int,
    prompt: int,
    answer: int,
) -> Iterator[Part]:
    """Forward and backward of `rows` rows."""
    number, tokens = _BYTES[precision.dtype], rows * (prompt + answer)
    a_layer = layer_bytes_a_token(shape, config, precision, prompt + answer)
    checkpointing = config.training.gradient_checkpointing
    kept = shape.hidden * number if checkpointing else a_layer
    holes = _HOLES[precision.device]
    yield Part(
        "activations", phase, round(tokens * shape.layers * kept * holes),
        f"{rows} rows x {prompt + answer} tokens x {shape.layers} layers x {kept} B"
        + (f" x {holes}" if holes > 1 else "")
        + (" (checkpointed)" if checkpointing else ""),
    )  # fmt: skip
    at_work = tokens * a_layer * (2 if checkpointing else 1)
    on_cpu = precision.device == "cpu"
    scored = min(tokens if on_cpu else rows * answer, _TILE_TOKENS)
    wide = min(shape.vocabulary, _TILE_VOCABULARY)
    a_number = number + (_TILE_FLOAT32_BYTES if on_cpu else 0)
    tile = scored * wide * a_number
    if tile > at_work:
        formula = f"{scored} positions x {wide} of the vocabulary x {a_number} B"
        yield Part("output layer, one tile", phase, tile, formula)
    else:
        formula = f"{tokens} tokens x {a_layer} B" + (" x 2" if checkpointing else "")
        yield Part("one layer at work", phase, at_work, formula)
