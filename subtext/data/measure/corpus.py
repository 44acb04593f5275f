"""From the sound files of a corpus to its `prosody.json`.

The sound of a clip is `audio/<clip_id>.<suffix>` beside `sarcasm_data.json`. Clips are measured in
parallel processes, and each record is kept at once in the cache folder, so that a run that was
killed goes on where it stopped. The bytes of `prosody.json` depend on the sound, the words and the
extractor, not on the number of processes or on who finished first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from subtext import strict_json
from subtext.cores import free_cores
from subtext.data.folder import AUDIO_FOLDER, CLIPS_FILE, PROSODY_FILE
from subtext.data.measure.cache import RecordCache
from subtext.data.measure.pool import Job, Outcome, measure_jobs
from subtext.data.scenarios import read_clips
from subtext.errors import ConfigError, DataError, Problem, reason_of
from subtext.progress import Progress, Watcher, nobody
from subtext.prosody.schema import SCHEMA

_TITLE = "Prosody not measured"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measured:
    """What `measure_corpus` did: the file written, counts of clips, and reasons by clip id."""

    path: Path
    n_clips: int
    n_measured: int
    n_reused: int
    failures: dict[str, str]


class MeasureError(DataError):
    """Clips that can't be measured. The message lists all of them, however many there are."""

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.title}: {len(self.problems)} problem(s)",
                *(f"  - {problem}" for problem in self.problems),
                f"{PROSODY_FILE} stays as it was; what was measured is kept. "
                "To go on without these: --allow-missing, or allow_missing=true.",
            ]
        )


def check_workers(n_workers: int) -> None:
    """Raise ConfigError for a negative number of processes."""
    if n_workers < 0:
        remedy = "Give the number of processes, or 0 for as many as cores are free."
        problem = Problem("measure", "n_workers", n_workers, "is negative", remedy)
        raise ConfigError("Configuration refused", [problem])


def check_corpus(root: Path) -> dict[str, dict[str, Any]]:
    """Return the clips of `root` as its `sarcasm_data.json` has them, whatever lies beside it.

    Raises DataError for clips that can't be read, and for a missing folder of sounds.
    """
    problems: list[Problem] = []
    clips = read_clips(root / CLIPS_FILE, problems)
    if not (root / AUDIO_FOLDER).is_dir():
        remedy = (
            f"Put the clips' sounds there: {AUDIO_FOLDER}/<clip id>.wav, .flac, .mp4 and so on."
        )
        problems.append(Problem(str(root), AUDIO_FOLDER, None, "is no folder", remedy))
    if problems:
        raise DataError(f"Data in {root} refused", problems)
    return clips


def measure_corpus(
    root: Path, *, n_workers: int = 0, allow_missing: bool = False, watcher: Watcher = nobody
) -> Measured:
    """Measure every clip in `root` and write its `prosody.json`, whatever stood there before.

    `n_workers` processes; 0: as many as cores are free. One clip that fails never stops the rest.
    With `allow_missing` the file is written without such clips and gives their reasons under
    "missing". Without it, or when no clip at all can be measured, the old file stays and
    MeasureError lists every failure. Raises also what `check_workers` and `check_corpus` raise,
    DataError where a file can't be written, and MachineError where no process can start.
    """
    from subtext.prosody.measure import audio_extractor

    check_workers(n_workers)
    clips = check_corpus(root)
    extractor = audio_extractor()
    records: dict[str, dict[str, Any]] = {}
    failed: dict[str, tuple[Problem, ...]] = {}
    n_reused = 0
    for outcome, reused in _outcomes(root, clips, RecordCache(extractor), n_workers):
        if outcome.record is None:
            failed[outcome.job.clip_id] = outcome.problems
        else:
            records[outcome.job.clip_id] = outcome.record
            n_reused += reused
        watcher(Progress("measure", len(records) + len(failed), len(clips)))

    ordered = [clip_id for clip_id in clips if clip_id in failed]
    if failed and not (allow_missing and records):
        raise MeasureError(_TITLE, [problem for clip_id in ordered for problem in failed[clip_id]])
    reasons = {clip_id: _reason(failed[clip_id], root) for clip_id in ordered}
    content = {"schema": SCHEMA, "extractor": extractor, "clips": records}
    with _writing():
        strict_json.write(
            root / PROSODY_FILE, {**content, "missing": reasons} if reasons else content
        )
    result = Measured(root / PROSODY_FILE, len(clips), len(records) - n_reused, n_reused, reasons)
    logger.info(
        "%d clips measured, %d known from before, %d not measurable -> %s",
        result.n_measured, result.n_reused, len(reasons), result.path,
    )  # fmt: skip
    return result


def _outcomes(
    root: Path, clips: Mapping[str, Mapping[str, Any]], cache: RecordCache, n_workers: int
) -> Iterator[tuple[Outcome, bool]]:
    """Yield what became of every clip, and whether its record was known before."""
    from subtext.prosody.sound_files import only_file, sound_files

    folder, entries = root / AUDIO_FOLDER, dict[Job, Path]()
    files = sound_files(folder)
    for clip_id, clip in clips.items():
        job = Job(clip_id, folder / clip_id, clip["utterance"])
        try:
            job = replace(job, path=only_file(folder, clip_id, files))
            entry = cache.entry(job)
        except DataError as error:
            yield Outcome(job, problems=error.problems), False
            continue
        record = cache.read(entry)
        if record is None:
            entries[job] = entry
        else:
            yield Outcome(job, record), True
    if not entries:
        return
    for outcome in measure_jobs(list(entries), n_workers or free_cores()):
        if outcome.record is not None:
            with _writing():
                cache.write(entries[outcome.job], outcome.record)
        yield outcome, False


@contextmanager
def _writing() -> Iterator[None]:
    """Say which file can't be written, and why."""
    try:
        yield
    except OSError as error:
        problem = Problem(
            "measure", "file", str(error.filename), f"can't be written: {reason_of(error)}",
            "Make room, or name a folder you may write to ($SUBTEXT_CACHE: measured clips).",
        )  # fmt: skip
        raise DataError(_TITLE, [problem]) from error


def _reason(problems: Sequence[Problem], root: Path) -> str:
    """The same text on every machine: it goes into prosody.json."""
    text = "; ".join(f"{problem.field} {problem.problem}" for problem in problems)
    return text.replace(f"{root}/", "")
