"""Which of several training processes this one is, as torch's launcher says in the environment.

Training in one process is the case of one rank.
"""

from __future__ import annotations

import os


def n_ranks() -> int:
    """How many processes train this run together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def writes_records() -> bool:
    """Whether this process writes to the run directory: one of the ranks, the first, does."""
    return os.environ.get("RANK", "0") == "0"


def any_rank(here: bool) -> bool:
    """Whether `here` is true in any of the ranks, all of which must ask at the same point."""
    if n_ranks() == 1:
        return here
    import torch
    from accelerate import PartialState
    from accelerate.utils import reduce

    found = torch.tensor(float(here), device=PartialState().device)
    return bool(reduce(found, "sum").item())


def take_own_gpu() -> None:
    """Make `cuda` mean the GPU of this rank, where there are GPUs and several ranks."""
    import torch

    if n_ranks() > 1 and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
