"""Ctrl-C in a terminal goes to every process of the group; only one of them should answer it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_to_parent() -> Iterator[None]:
    """Processes started inside never see Ctrl-C: they inherit the mask from the first moment.

    For the thread that enters. Where the system has no such mask (Windows) nothing is done.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
