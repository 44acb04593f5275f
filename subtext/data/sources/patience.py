"""How long to go on trying a download that fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from subtext.errors import DownloadError

_PROGRESS_BYTES = 2**20
# Timeout, another server's request, too early, too many: RFC 9110, 8470, 6585 let one ask again.
_RETRYABLE_STATUS = {408, 421, 425, 429}

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


@dataclass(frozen=True)
class Patience:
    """How long to wait: `silence_s` for the next bytes of an answer, then `waits_s` between
    attempts that brought less than 1 MiB; as many attempts more as there are waits."""

    silence_s: float = 60.0
    waits_s: tuple[float, ...] = (1.0, 4.0, 16.0)


def may_recover(status: int) -> bool:
    """Whether the same request may succeed later, after an HTTP answer of this status."""
    return status in _RETRYABLE_STATUS or status >= 500


def persistently(
    call: Callable[[], _T], patience: Patience, gained: Callable[[], int] = lambda: 0
) -> _T:
    """Return what `call` returns, trying again after retryable DownloadErrors.

    `gained` counts bytes kept: an attempt that brought 1 MiB or more costs no patience.
    """
    waits = list(patience.waits_s)
    while True:
        before = gained()
        try:
            return call()
        except DownloadError as error:
            if gained() - before >= _PROGRESS_BYTES:
                waits = list(patience.waits_s)
            if not error.retryable or not waits:
                raise
            wait_s = waits.pop(0)
            logger.warning("%s; next try in %.0f s", error.problems[0].problem, wait_s)
            time.sleep(wait_s)
