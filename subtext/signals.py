"""Signals that end a process: who answers them, and when."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

Handler = Callable[[int, FrameType | None], Any]

_ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def left_to_parent() -> Iterator[None]:
    """Processes started inside never see Ctrl-C: they inherit the mask from the first moment.

    Ctrl-C in a terminal goes to every process of the group; only one of them should answer it. For
    the thread that enters. Where the system has no such mask (Windows) nothing is done.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class DeferredSignals:
    """Keeps SIGTERM and Ctrl-C waiting while something is written that must not be cut in two.

    A context manager. Within it a signal still calls the handler that was there before, such as
    Prefect's, which raises TerminationSignal, or Python's, which raises KeyboardInterrupt; where
    none was there, SIGTERM raises SystemExit(143). Between `hold` and `release` it waits; what
    waited is answered on release, or on leaving unless a signal's exception is on its way already.

    Earlier handlers stay installed while nothing is held: Prefect takes a cancellation for a crash
    where it finds another one than its own. Signals are Python's main thread's alone; in any other
    thread nothing is done.
    """

    def __init__(self) -> None:
        self._before: dict[int, Handler | int] = {}
        self._waiting: int | None = None
        self._held = False

    @property
    def held(self) -> bool:
        """Whether signals wait."""
        return self._held

    @property
    def waiting(self) -> bool:
        """Whether a signal came and waits to be answered."""
        return self._waiting is not None

    def hold(self) -> None:
        """From here on signals wait."""
        for number in self._before:
            signal.signal(number, self._wait)
        self._held = True

    def release(self) -> None:
        """Answer the signal that waited, if any; from here on signals are answered at once."""
        self._held = False
        for number in self._before:
            signal.signal(number, self._answer(number))
        self._act()

    def leave(self) -> None:
        """As `release`, where a signal need not have come here: another rank has one."""
        self._waiting = self._waiting or signal.SIGTERM
        self.release()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                handler = signal.getsignal(number)
                # None is a handler of another language's; an ignored signal stays ignored.
                if handler is not None and handler is not signal.SIG_IGN:
                    self._before[number] = handler
        self.release()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None or issubclass(kind, Exception):
            self._act()

    def _wait(self, number: int, frame: FrameType | None) -> None:
        self._waiting = self._waiting or number

    def _act(self) -> None:
        number, self._waiting = self._waiting, None
        if number is not None:
            self._answer(number)(number, None)

    def _answer(self, number: int) -> Handler:
        before = self._before[number]
        return _leave if isinstance(before, int) else before


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """What the system's own way would report, but with the chance to tidy up."""
    raise SystemExit(128 + number)
