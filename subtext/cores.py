"""How many cores are free, for whatever divides its work among threads or processes."""

from __future__ import annotations

import os

_SAMPLE_S = 0.5


def free_cores() -> int:
    """Cores that this process may use and that idled over half a second; at least one."""
    import psutil

    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    busy = psutil.cpu_percent(_SAMPLE_S, percpu=True)
    mine = [busy[core] for core in allowed if core < len(busy)] if allowed else busy
    idle = sum(100 - percent for percent in mine) / 100
    return max(1, round(idle))
