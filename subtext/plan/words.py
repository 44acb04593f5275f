"""How sizes and times read in a plan."""

from __future__ import annotations


def gigabytes(n_bytes: int) -> str:
    """`2490368000` -> `2.5 GB`; less than 1 GB in MB."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"


def hours(seconds: float) -> str:
    """`5025` -> `1 h 24 min`; less than two minutes in seconds."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def dollars(cost: float) -> str:
    """`0.0042` -> `$0.0042`; a dollar and more in cents."""
    return f"${cost:.2f}" if cost >= 1 else f"${cost:.4f}"
