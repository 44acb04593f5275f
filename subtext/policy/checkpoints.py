"""Which checkpoint training goes on from.

TRL writes a checkpoint file by file, `trainer_state.json` last, and deletes old ones file by file.
A kill leaves one that lacks files, or holds files cut short. They are told apart by structure
alone: no file is unpickled and torch is not needed.
"""

from __future__ import annotations

import json
import logging
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from subtext.errors import reason_of
from subtext.policy.adapter_record import WEIGHTS
from subtext.run_dir import RunDir

logger = logging.getLogger(__name__)

_STATE = "trainer_state.json"
_LENGTH_BYTES = 8  # a safetensors file starts with its header's length, little endian


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint of the first `step` optimiser steps."""

    step: int
    path: Path


def newest_checkpoint(run: RunDir) -> Checkpoint | None:
    """Return the newest whole checkpoint of `run`, or None; delete those that are not whole.

    Each deleted one is logged with the reason. TRL would write into a folder of the same name,
    where files of two saves could pass for one, and count it among those it keeps.
    """
    newest = None
    for step, folder in run.checkpoints.items():
        if fault := checkpoint_fault(folder, step):
            logger.warning("%s is not whole and is deleted: %s", folder, fault)
            (folder / _STATE).unlink(missing_ok=True)  # first, so that what is left is not whole
            shutil.rmtree(folder)
        else:
            newest = Checkpoint(step, folder)
    return newest


def checkpoint_fault(folder: Path, step: int) -> str | None:
    """Return what keeps `folder` from being a whole checkpoint of `step`, or None."""
    needed = [(_STATE, _STATE), (WEIGHTS, WEIGHTS), ("optimizer.pt", "optimizer.pt"),
              ("scheduler.pt", "scheduler.pt"), ("rng_state*.pth", "rng_state.pth")]  # fmt: skip
    for pattern, name in needed:
        if not any(path.is_file() for path in folder.glob(pattern)):
            return f"there is no {name}"
    # Beside those: the gradient scaler of float16, and the reference adapter of grpo.beta.
    archives = [path for suffix in ("pt", "pth") for path in sorted(folder.rglob(f"*.{suffix}"))]
    faults = [
        _state_fault(folder / _STATE, step),
        *(weights_fault(path) for path in sorted(folder.rglob("*.safetensors"))),
        *(_archive_fault(path) for path in archives),
    ]
    return next((fault for fault in faults if fault), None)


def weights_fault(path: Path) -> str | None:
    """Return what is wrong with a safetensors file, or None where header and length agree."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
            if not 0 < length <= size - _LENGTH_BYTES:
                return f"{path.name} has no header"
            header = json.loads(stream.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name[:2] != "__"]
    except OSError as error:
        return f"{path.name}: {reason_of(error)}"
    except (ValueError, AttributeError, TypeError, LookupError):
        return f"{path.name} has no header"
    expected = _LENGTH_BYTES + length + max(ends, default=0)
    return None if size == expected else f"{path.name} has {size} bytes of {expected}"


def _state_fault(path: Path, step: int) -> str | None:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))  # TRL's, which may hold a NaN
    except (OSError, ValueError):
        return f"{path.name} can't be read"
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        return f"{path.name} holds no trainer's state"
    found = state.get("global_step")
    return None if found == step else f"{path.name} is of step {found!r}"


def _archive_fault(path: Path) -> str | None:
    """What torch saves is a zip archive, with its directory at the end and a checksum an entry."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile):
        return f"{path.name} is cut short or no archive"
    return f"{path.name} is damaged in {broken}" if broken else None
