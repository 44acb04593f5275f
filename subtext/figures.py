"""How figures read in sentences and tables of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def percent(share: float, digits: int = 0) -> str:
    """`0.234` -> `23 %`."""
    return f"{100 * share:.{digits}f} %"


def interval_text(bounds: Sequence[float]) -> str:
    """`0.28-0.50`."""
    low, high = bounds
    return f"{low:.2f}-{high:.2f}"


def difference_text(row: Mapping[str, Any]) -> str:
    """`+0.056 (-0.05 to +0.12)`, of what `subtext.evaluation.statistics.compare` returns."""
    low, high = row["interval"]
    return f"{row['difference']:+.3f} ({low:+.2f} to {high:+.2f})"
