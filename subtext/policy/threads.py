"""How many threads torch may use, and how they wait for each other.

On a busy machine two torch threads on fewer free cores wait for each other at every operation, by
default spinning on a core that the other one needs: a slowdown of ten times or more. So waiting
threads give their core away, and idle cores are counted before threads are.
"""

from __future__ import annotations

import os

from subtext.cores import free_cores
from subtext.policy.ranks import n_ranks


def wait_passively() -> None:
    """Let OpenMP's threads sleep while they wait. Works before torch is first imported only."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def set_threads(num_threads: int) -> int:
    """Set torch's threads: `num_threads`, or if 0 this rank's share of the cores that are free.

    Returns the number.
    """
    import torch

    chosen = num_threads or max(1, free_cores() // n_ranks())
    torch.set_num_threads(chosen)
    return chosen
