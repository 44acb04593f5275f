"""A disk without room, made of a real limit of the system."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_room(n_bytes: int = 0) -> Iterator[None]:
    """Within the block no file of this process may grow beyond `n_bytes`.

    The system then refuses a write without naming a file, as on a full disk. Keep the block short:
    it holds for what pytest prints to a file, too.
    """
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
