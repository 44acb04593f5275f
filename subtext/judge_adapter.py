"""Put a saved adapter on its base model, and say plainly where it is damaged or does not fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from subtext import strict_json
from subtext.errors import MachineError, Problem, reason_of
from subtext.policy.adapter_record import SHAPE, WEIGHTS, damaged, require_safetensors
from subtext.policy.base_model import BaseModel
from subtext.policy.load import load_adapters

_UNUSED = (
    "alpha_pattern", "auto_mapping", "exclude_modules", "layer_replication", "layers_pattern",
    "megatron_config", "modules_to_save", "rank_pattern", "target_parameters",
    "trainable_token_indices",
)  # fmt: skip
"""What adapters of Subtext's leave empty. Some make peft import modules by name, or match layers by
an expression that can take for ever."""
_BROKEN = (AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError)
"""What json, peft and torch raise about files that peft did not write so."""


def check_files(adapter: Path) -> None:
    """Raise DataError for a file of peft's that is missing, cut short or otherwise broken, and for
    an adapter that is more than a LoRA on layers that it lists by name."""
    from peft import PeftConfig
    from safetensors import SafetensorError, safe_open

    require_safetensors(adapter)
    name = SHAPE
    try:
        shape = strict_json.read(adapter / SHAPE)
        _check_plain_lora(adapter, shape)
        PeftConfig.from_peft_type(**shape)
        name = WEIGHTS
        with safe_open(adapter / WEIGHTS, "numpy"):
            pass
    except (*_BROKEN, SafetensorError) as error:
        raise damaged(adapter, name, f"can't be read: {reason_of(error)}") from error


def _check_plain_lora(adapter: Path, shape: Mapping[str, Any]) -> None:
    used = [key for key in _UNUSED if shape.get(key)]
    if shape["peft_type"] != "LORA":
        used.append("peft_type")
    if not isinstance(shape["target_modules"], list):
        used.append("target_modules")
    if used:
        shown = ", ".join(f"{key} = {shape[key]!r:.60}" for key in used)
        raise damaged(adapter, SHAPE, f"is no LoRA as Subtext trains it: {shown}")


def wrapped(model: Any, adapter: Path, record: Mapping[str, Any], base: BaseModel) -> Any:
    """Return `model`, loaded from `base`, with the adapter, whose record of its base is `record`.

    Raises MachineError where the base is another one and does not fit, DataError where the adapter
    does not fit its own.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Found missing adapter keys")
            return load_adapters(model, {"trained": adapter})
    except (*_BROKEN, UserWarning) as error:  # peft's own: layers missing or of another shape
        if not is_other(record, base):
            said = f"does not fit {SHAPE} and the base model: {error}"
            raise damaged(adapter, WEIGHTS, said) from error
        problem = Problem(
            "subtext.json", "base.sha256", record["sha256"],
            f"the base model found here has {base.sha256}, and the adapter does not fit it",
            "Install the model that the adapter was trained on.",
        )  # fmt: skip
        raise MachineError("The base model is another one", [problem]) from error


def is_other(record: Mapping[str, Any], base: BaseModel) -> bool:
    """Whether `base` has another digest than `record` has of the adapter's base."""
    return bool(record["sha256"]) and base.sha256 != record["sha256"]
