"""What tells one policy from another: the base, its number format and the adapter's content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from subtext import strict_json
from subtext.digests import sha256_of
from subtext.policy.adapter_record import SHAPE, WEIGHTS
from subtext.policy.base_model import BaseModel
from subtext.policy.precision import Precision

# Where the base lay and which peft wrote the file: two copies of an adapter may differ in these.
_NOT_THE_FUNCTION = ("base_model_name_or_path", "revision", "peft_version")


def policy_digest(base: BaseModel, precision: Precision, adapter: Path | None) -> str:
    """Return a sha256 that is the same where greedy answers are: same base, device, dtype and
    quantisation, same adapter (None: none) wherever its folder lies.

    Raises OSError or ValueError where `adapter` is no folder that peft saved.
    """
    return strict_json.digest(
        {
            "base": base.record(),
            "device": precision.device,
            "dtype": precision.dtype,
            "quantization": precision.quantization,
            "adapter": _adapter(adapter) if adapter else None,
        }
    )


def _adapter(folder: Path) -> dict[str, Any]:
    shape = strict_json.read(folder / SHAPE)
    # peft writes sets as lists, in any order.
    return {
        "weights": sha256_of(folder / WEIGHTS),
        "shape": {
            key: sorted(value) if isinstance(value, list) else value
            for key, value in shape.items()
            if key not in _NOT_THE_FUNCTION
        },
    }
