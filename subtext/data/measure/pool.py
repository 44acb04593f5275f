"""Measure many clips in parallel processes, of which any may die.

A process a core: measuring holds Python's lock, and a decoder that crashes on a broken file, or the
system's hunt for memory, takes one process with it and not the run.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from ctypes import c_bool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subtext.errors import DataError, MachineError, Problem
from subtext.prosody.schema import record_problems
from subtext.signals import left_to_parent

# The parallelism is one of clips: numerical libraries that add threads would fight over the cores.
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}

# Not forked: a fork of a process with threads (Prefect's, OpenMP's) may never wake up.
_SPAWN = multiprocessing.get_context("spawn")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A clip to measure: its sound file, and the words spoken in it."""

    clip_id: str
    path: Path
    utterance: str

    @property
    def where(self) -> str:
        """How a problem names the clip."""
        return f"clip {self.clip_id}"


@dataclass(frozen=True)
class Outcome:
    """What became of a job: a valid prosody record, or why there is none."""

    job: Job
    record: dict[str, Any] | None = None
    problems: tuple[Problem, ...] = ()


def measure_jobs(jobs: Sequence[Job], n_workers: int) -> Iterator[Outcome]:
    """Yield the outcome of every job as it is known, `n_workers` at a time, in any order.

    When a process dies nobody knows which of the clips in flight it died of, so each is measured
    once more in a process of its own; the clip that kills that one too becomes a problem.
    Raises MachineError when no process ever starts, of which no clip is guilty.
    """
    waiting = deque(jobs)
    # Without a lock, which a process that is killed could keep.
    started = _SPAWN.RawValue(c_bool)
    while waiting:
        suspects: list[Job] = []
        yield from _until_a_death(waiting, min(n_workers, len(waiting)), suspects, started)
        if suspects and not started.value:
            problem = Problem(
                "measure", "n_workers", n_workers, "no process that measures can start",
                "What it printed says why; a script that measures needs the line "
                "`if __name__ == \"__main__\":`, since every process imports it.",
            )  # fmt: skip
            raise MachineError("Prosody not measured", [problem])
        for job in suspects:
            yield _measure_alone(job, started)


def _until_a_death(
    waiting: deque[Job], n_workers: int, suspects: list[Job], started: c_bool
) -> Iterator[Outcome]:
    """Work off `waiting`; when a process dies, add the jobs in flight to `suspects` and stop."""
    running: dict[Future[Outcome], Job] = {}
    with _pool(n_workers, started) as pool:
        while running or (waiting and not suspects):
            # No more than the processes can hold, so that few clips are suspected.
            while waiting and not suspects and len(running) < n_workers:
                job = waiting.popleft()
                try:
                    running[_submit(pool, job)] = job
                except BrokenProcessPool:
                    suspects.append(job)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    suspects.append(job)
                else:
                    yield outcome


def _measure_alone(job: Job, started: c_bool) -> Outcome:
    logger.info("%s: a process died; measuring it once more, alone", job.where)
    try:
        with _pool(1, started) as pool:
            return _submit(pool, job).result()
    except BrokenProcessPool:
        problem = Problem(
            job.where, "audio", job.path.name,
            "ends the process that measures it (a crash, memory ran out, or none can start)",
            "Cut or convert the file, free memory or use fewer workers, and measure again.",
        )  # fmt: skip
        return Outcome(job, problems=(problem,))


def _pool(n_workers: int, started: c_bool) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(n_workers, _SPAWN, initializer=_start_process, initargs=(started,))


def _submit(pool: ProcessPoolExecutor, job: Job) -> Future[Outcome]:
    with left_to_parent():
        return pool.submit(_measure, job)


def _start_process(started: c_bool) -> None:
    """One thread for numbers, no heed of Ctrl-C, and an end when the parent ends."""
    os.environ.update(_ONE_THREAD)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A killed parent can't stop its pool, whose processes would wait for work for ever.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    started.value = True


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _measure(job: Job) -> Outcome:
    """Runs in a process of the pool. Returns every failure, so that one file never stops others."""
    from subtext.prosody.measure import measure_clip

    try:
        record = measure_clip(job.path, job.utterance, job.where)
    except DataError as error:
        return Outcome(job, problems=error.problems)
    except Exception as error:
        logger.exception("%s: a defect", job.where)
        problem = Problem(
            job.where, "audio", job.path.name, f"raised {type(error).__name__}: {error}",
            "This is a defect of Subtext: please report it, with the file if you may.",
        )  # fmt: skip
        return Outcome(job, problems=(problem,))
    problems = tuple(record_problems(job.where, record))
    return Outcome(job, None if problems else record, problems)
