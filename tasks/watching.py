"""Watch a step of the library: on the terminal, in the Prefect UI and in the run's log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from subtext.progress import Progress, TerminalBar, Watcher
from tasks.artifacts import PrefectProgress
from tasks.library_log import library_log


@contextmanager
def watched(name: str) -> Iterator[Watcher]:
    """A watcher that fills the terminal's bar and Prefect's, for the run or corpus `name`; within
    the block the library's log is the run's."""
    prefect_progress = PrefectProgress(name)
    with library_log(), TerminalBar() as bar:

        def watch(progress: Progress) -> None:
            bar(progress)
            prefect_progress(progress)

        try:
            yield watch
        finally:
            prefect_progress.close()
