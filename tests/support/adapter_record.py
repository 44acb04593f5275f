"""The record beside an adapter's weights, as `save_adapter` writes it."""

from __future__ import annotations

from typing import Any

from subtext.prosody.reference import PUBLISHED

TINY_BASE = {"source": "tiny", "name": "subtext-tiny", "revision": "", "sha256": "c" * 64}


def adapter_record(**changes: Any) -> dict[str, Any]:
    return {
        "schema": "subtext-adapter/3",
        "base": TINY_BASE,
        "dtype": "float32",
        "quantization": "none",
        "cast": {"speakers": ["ANNA"], "shows": []},
        "prosody_reference": PUBLISHED.record(),
        "prompt": {"header": "blind", "speaker": "masked", "cue_rules": False},
        "max_new_tokens": 8,
        "batch_size": 4,
    } | changes
