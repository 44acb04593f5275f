"""Which process works on a run, as tags by which another process can tell whether it still lives.

Hosts are told apart by name, so those that share a store must have different ones.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

import psutil

HOST, PID, STARTED, NAMESPACE = "host", "pid", "process_started", "pid_namespace"
_SAME_START_S = 2.0  # the kernel counts from a boot time that a corrected clock moves
_NAMESPACE = Path("/proc/self/ns/pid")


def this_process() -> dict[str, str]:
    """Return the tags of this process: host, pid, its start in seconds since 1970, and, on Linux,
    the space in which the pid counts, since containers may share a host's name."""
    return {
        HOST: platform.node(),
        PID: str(os.getpid()),
        STARTED: f"{psutil.Process().create_time():.3f}",
        NAMESPACE: _namespace(),
    }


def is_gone(tags: Mapping[str, str]) -> bool:
    """Whether the process with `tags` surely ended: False for another host's, and where the tags
    don't say enough."""
    if tags.get(HOST) != platform.node() or tags.get(NAMESPACE) != _namespace():
        return False
    try:
        pid, started = int(tags[PID]), float(tags[STARTED])
    except (KeyError, ValueError):
        return False
    try:
        process = psutil.Process(pid)
        ended = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return ended or abs(process.create_time() - started) > _SAME_START_S
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def _namespace() -> str:
    return str(_NAMESPACE.readlink()) if _NAMESPACE.is_symlink() else ""
