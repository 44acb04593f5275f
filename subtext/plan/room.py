"""What is free on this machine: memory and disk; and what a run writes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from subtext.config import RunConfig
from subtext.errors import Problem
from subtext.plan.shape import ModelShape
from subtext.plan.words import gigabytes

_CGROUP = Path("/sys/fs/cgroup")
_TOKENIZER_BYTES = 12_000_000  # the largest in use; each checkpoint has one
_RECORD_BYTES_A_COMPLETION = 6_000  # its prompt, text and rewards in parquet
_LORA_BYTES, _ADAM_BYTES = 4, 8


def free_memory(device: str, cgroup: Path = _CGROUP) -> int:
    """Bytes that a new process can have: of the first GPU, or of this machine or its container."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(0)[0])
    import psutil

    free = int(psutil.virtual_memory().available)
    limit, used = cgroup / "memory.max", cgroup / "memory.current"
    try:
        return min(free, int(limit.read_text()) - int(used.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return free


def disk_needs(
    config: RunConfig, shape: ModelShape, *, on_disk: bool, runs_dir: Path, base_dir: Path
) -> list[dict[str, Any]]:
    """Return what will be written where: `path`, `needed_bytes`, `free_bytes`, `for` in words."""
    n_adapter = shape.adapter_parameters(config.lora.r, config.lora.target_modules)
    adapter = n_adapter * _LORA_BYTES + _TOKENIZER_BYTES
    steps, training = config.grpo.max_steps, config.training
    # One more than is kept: the oldest goes when the newest is whole.
    checkpoints = min(training.save_total_limit + 1, -(-steps // training.save_steps))
    n_adapters = 3 if config.warm_start.steps else 2  # with MLflow's copy
    run = checkpoints * (adapter + n_adapter * _ADAM_BYTES) + n_adapters * adapter
    run += steps * config.completions_per_step * _RECORD_BYTES_A_COMPLETION
    needs = [_need(runs_dir, run, f"{checkpoints} checkpoints, {n_adapters} adapters, records")]
    if not on_disk:
        base = shape.parameters * 2
        needs.append(_need(base_dir, base, "weights of the base, downloaded or unpacked once"))
    return needs


def disk_problems(needs: list[dict[str, Any]]) -> Iterator[Problem]:
    """Yield each place without room; places on one file system share it."""
    needed_on: dict[int, int] = {}
    for need in needs:
        device = _nearest(Path(need["path"])).stat().st_dev
        needed_on[device] = needed_on.get(device, 0) + need["needed_bytes"]
        if needed_on[device] > need["free_bytes"]:
            yield Problem(
                "disk", need["path"], gigabytes(need["free_bytes"]),
                f"is free there, and {gigabytes(needed_on[device])} will be written: {need['for']}",
                "Make room, name another place (training.runs_dir, HF_HOME, SUBTEXT_CACHE), or "
                "lower training.save_total_limit.",
            )  # fmt: skip


def _need(path: Path, n_bytes: int, what: str) -> dict[str, Any]:
    free = shutil.disk_usage(_nearest(path)).free
    return {"path": str(path), "needed_bytes": n_bytes, "free_bytes": free, "for": what}


def _nearest(path: Path) -> Path:
    """`path` or the nearest folder above it that is there already."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
