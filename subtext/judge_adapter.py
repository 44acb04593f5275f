"""Put a saved adapter on its base model, and say plainly where it is damaged or does not fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from subtext import strict_json
from subtext.errors import DataError, MachineError, Problem, reason_of
from subtext.policy.base_model import BaseModel
from subtext.policy.load import load_adapters

_SHAPE, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_BROKEN = (AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError)
"""What json, peft and torch raise about files that peft did not write so."""


def check_files(adapter: Path) -> None:
    """Raise DataError for a file of peft's that is missing, cut short or otherwise broken."""
    from peft import PeftConfig
    from safetensors import SafetensorError, safe_open

    name = _SHAPE
    try:
        PeftConfig.from_peft_type(**strict_json.read(adapter / _SHAPE))
        name = _WEIGHTS
        with safe_open(adapter / _WEIGHTS, "numpy"):
            pass
    except (*_BROKEN, SafetensorError) as error:
        raise _damaged(adapter, name, f"can't be read: {reason_of(error)}") from error


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
            said = f"does not fit {_SHAPE} and the base model: {error}"
            raise _damaged(adapter, _WEIGHTS, said) from error
        problem = Problem(
            "subtext.json", "base.sha256", record["sha256"],
            f"the base model found here has {base.sha256}, and the adapter does not fit it",
            "Install the model that the adapter was trained on.",
        )  # fmt: skip
        raise MachineError("The base model is another one", [problem]) from error


def is_other(record: Mapping[str, Any], base: BaseModel) -> bool:
    """Whether `base` has another digest than `record` has of the adapter's base."""
    return bool(record["sha256"]) and base.sha256 != record["sha256"]


def _damaged(adapter: Path, name: str, said: str) -> DataError:
    remedy = "Copy it back from where the adapter was published, or train the adapter again."
    problem = Problem(str(adapter), name, str(adapter / name), said, remedy)
    return DataError("The adapter is damaged", [problem])
