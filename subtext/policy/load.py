"""Load a base model and put a LoRA adapter on it: the same way for training, evaluation and use."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtext import strict_json
from subtext.config import LoraConfig, RunConfig
from subtext.data.masking import Cast
from subtext.errors import ConfigError, Problem
from subtext.policy.adapter_record import (
    ADAPTER_RECORD,
    ADAPTER_SCHEMA,
    SHAPE,
    require_safetensors,
)
from subtext.policy.base_model import BaseModel
from subtext.policy.precision import Precision
from subtext.prosody.reference import Reference

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Qwen3's template would open a thinking block of its own; other templates ignore the name.
CHAT_TEMPLATE_OPTIONS = {"enable_thinking": False}


def load_tokenizer(base: BaseModel) -> PreTrainedTokenizerBase:
    """Return the base's tokenizer, padding on the left; without a pad token, the end token pads."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        base.location,
        revision=base.revision or "main",
        padding_side="left",
        trust_remote_code=False,
    )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_base(base: BaseModel, precision: Precision) -> PreTrainedModel:
    """Load the base's safetensors weights in the chosen format, on the chosen device."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    dtype = getattr(torch, precision.dtype)
    quantization = None
    if precision.quantization == "nf4":
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
    return AutoModelForCausalLM.from_pretrained(
        base.location,
        revision=base.revision or "main",
        dtype=dtype,
        quantization_config=quantization,
        device_map={"": precision.device},
        use_safetensors=True,
        trust_remote_code=False,
    )


def add_adapter(model: PreTrainedModel, lora: LoraConfig, seed: int) -> PeftModel:
    """Wrap `model` with a fresh LoRA adapter, initialised from `seed`.

    Wrapped here and not by TRL, since warm start and GRPO train the same adapter in turn. Raises
    ConfigError when `lora.target_modules` names no layer of the model.
    """
    import peft
    from transformers import set_seed

    set_seed(seed)
    wanted = peft.LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.target_modules),
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        return peft.get_peft_model(model, wanted)
    except ValueError as error:  # no layer of the model has such a name
        layers = {name.rpartition(".")[2] for name, layer in _linear_layers(model)}
        problem = Problem(
            "configuration", "lora.target_modules", lora.target_modules,
            "names no layer of the base model", f"Choose of {', '.join(sorted(layers))}.",
        )  # fmt: skip
        raise ConfigError("Configuration refused", [problem]) from error


def _linear_layers(model: PreTrainedModel) -> list[tuple[str, Any]]:
    import torch

    outer = model.get_output_embeddings()
    return [
        (name, layer)
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear) and layer is not outer
    ]


def train_in_float32(model: Any) -> None:
    """Keep what trains in float32, whatever a trainer cast it to (`subtext.policy.precision`)."""
    import torch

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.float32)


def load_adapters(model: PreTrainedModel, adapters: Mapping[str, Path]) -> PeftModel:
    """Wrap `model` with saved adapters, by name, for judging; the first is active.

    Their weights take the model's own format: so they are computed in training too, under
    autocast, and float32 beside bf16 makes a CPU five times slower.
    """
    import peft

    for adapter in adapters.values():
        require_safetensors(adapter)
    (first, folder), *others = adapters.items()
    wrapped = peft.PeftModel.from_pretrained(
        model, folder, adapter_name=first, autocast_adapter_dtype=False
    )
    for name, other in others:
        wrapped.load_adapter(other, name, autocast_adapter_dtype=False)
    for parameter_name, parameter in wrapped.named_parameters():
        if "lora_" in parameter_name:
            parameter.data = parameter.data.to(model.dtype)
    return wrapped.eval()


def save_adapter(
    model: PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    base: BaseModel,
    precision: Precision,
    cast: Cast,
    reference: Reference,
    config: RunConfig,
    folder: Path,
) -> None:
    """Write adapter, tokenizer and the record of base and prompt to `folder`, replacing it whole.

    A process killed on the way leaves the folder as it was, as it will be, or not at all; never
    half of it.

    The record is what `subtext.judge` needs to answer as the trained policy did.
    """
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    # Adapted layers never include embeddings; asking peft to find out would contact the Hub.
    model.save_pretrained(unfinished, save_embedding_layers=False, selected_adapters=["default"])
    (unfinished / "README.md").unlink(missing_ok=True)
    tokenizer.save_pretrained(unfinished)
    _name_base(unfinished / SHAPE, base)
    record = {
        "schema": ADAPTER_SCHEMA,
        "base": base.record(),
        "dtype": precision.dtype,
        "quantization": precision.quantization,
        "cast": cast.record(),
        "prosody_reference": reference.record(),
        "prompt": config.prompt.model_dump(mode="json"),
        "max_new_tokens": config.evaluation.max_new_tokens or config.grpo.max_completion_length,
        "batch_size": config.evaluation.batch_size,
    }
    strict_json.write(unfinished / ADAPTER_RECORD, record)
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    unfinished.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _name_base(adapter_config: Path, base: BaseModel) -> None:
    """Put the base's public name where peft wrote the path it was loaded from."""
    content = strict_json.read(adapter_config)
    content["base_model_name_or_path"] = base.name
    content["revision"] = base.revision or None
    strict_json.write(adapter_config, content)
