"""JSON as this project reads and writes it: strict, sorted, the same bytes for the same value.

Writing: UTF-8, sorted keys, two-space indent, a final newline, never NaN or Infinity, and
atomic, so that a reader sees the old file or the new one. Reading refuses what the JSON
standard leaves open: duplicate keys, NaN and Infinity, numbers that would read as infinite, deep
nesting.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from subtext import atomic


def dumps(value: Any) -> str:
    """Return `value` as strict JSON text. Raises ValueError on NaN or Infinity."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def write(path: Path, value: Any) -> Path:
    """Write `value` to `path` in one step and return `path`."""
    return write_text(path, dumps(value))


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 `text` to `path` in one step, see `subtext.atomic`, and return `path`."""
    atomic.write_bytes(path, text.encode())
    return path


def digest(value: Any) -> str:
    """Return the sha256 of `value` as JSON on one line, keys sorted, without spaces."""
    text = json.dumps(
        value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()


def loads(text: str) -> Any:
    """Parse strict JSON. Raises ValueError that says what is wrong and where it can."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
            parse_float=_finite_number,
        )
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None


def read(path: Path) -> Any:
    """Parse the strict JSON file at `path`. Raises OSError or ValueError."""
    return loads(path.read_text(encoding="utf-8"))


def finite(value: Any) -> Any:
    """Return a copy of `value` in which every NaN or infinite float is None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"duplicate key {key!r}")
        result[key] = value
    return result


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
