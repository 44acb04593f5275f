"""One process at a time works on a run."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from subtext import strict_json
from subtext.errors import ConfigError, Problem
from subtext.run_dir import RunDir


@contextmanager
def working_on(run: RunDir) -> Iterator[None]:
    """Have the run directory to oneself; the lock ends with the process, however that ends.

    Raises ConfigError that names the process and the machine where another one has it.
    """
    lock = FileLock(run.lock)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ConfigError("Run refused", [_in_use(run)]) from None
    try:
        strict_json.write(run.lock_holder, {"pid": os.getpid(), "host": platform.node()})
        yield
    finally:
        run.lock_holder.unlink(missing_ok=True)
        lock.release()


def _in_use(run: RunDir) -> Problem:
    try:
        found = strict_json.read(run.lock_holder)
        holder = f"process {found['pid']} on {found['host']}"
    except (OSError, ValueError, TypeError, LookupError):  # it has only just begun, or ends
        holder = "another process"
    return Problem(
        "run directory", "training.run_id", run.run_id, f"{holder} works on this run",
        "Wait until it is done, or end it; or choose another training.run_id.",
    )  # fmt: skip
