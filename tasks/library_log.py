"""Lead what the library logs into the run's own log: on the terminal and in the Prefect UI.

Prefect's extra loggers forward warnings only, and the library says at INFO what it chose and why.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.logging import get_run_logger

from subtext.printable import printable


class _Forward(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._run_logger = get_run_logger()

    def emit(self, record: logging.LogRecord) -> None:
        self._run_logger.log(record.levelno, "%s", printable(record.getMessage()))


@contextmanager
def library_log() -> Iterator[None]:
    """Within the block, INFO and above of `subtext` go to the logger of the current run."""
    logger = logging.getLogger("subtext")
    before = logger.level, logger.propagate
    handler = _Forward()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
