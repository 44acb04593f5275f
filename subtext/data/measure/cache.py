"""Measured records kept in the cache folder, one file each, so that no clip is measured twice.

A record is found again by what it was measured from: the bytes of the sound file, the words, and
what measured them. A changed sound, transcript, extractor, decoder or line of the code in
`subtext/prosody/` therefore never meets an old record.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from subtext import strict_json
from subtext.data.measure.pool import Job
from subtext.digests import sha256_of
from subtext.errors import DataError, Problem, reason_of
from subtext.paths import cache_dir
from subtext.prosody.audio import check_file
from subtext.prosody.schema import record_problems


class RecordCache:
    """Records in `$SUBTEXT_CACHE/prosody/`, measured by `extractor`."""

    def __init__(self, extractor: str) -> None:
        self._folder = cache_dir() / "prosody"
        self._measured_by = [extractor, version("av"), version("numpy"), _code_digest()]

    def entry(self, job: Job) -> Path:
        """Return where the record of a clip belongs.

        Raises DataError for a sound that can't be read, or that reading would never end.
        """
        check_file(job.path)
        try:
            sound = sha256_of(job.path)
        except OSError as error:
            problem = Problem(
                job.where, "audio", job.path.name, f"can't be read: {reason_of(error)}",
                "Check path and rights.",
            )  # fmt: skip
            raise DataError("Audio refused", [problem]) from error
        key = json.dumps([sound, job.utterance, *self._measured_by])
        digest = hashlib.sha256(key.encode()).hexdigest()
        return self._folder / digest[:2] / f"{digest}.json"

    def read(self, entry: Path) -> dict[str, Any] | None:
        """Return the record kept there; None where there is none, or none that is valid."""
        try:
            record = strict_json.read(entry)
        except (OSError, ValueError):
            return None
        valid = isinstance(record, dict) and not any(record_problems("", record))
        return record if valid else None

    def write(self, entry: Path, record: dict[str, Any]) -> None:
        """Keep a record, in one step. Raises OSError."""
        strict_json.write(entry, record)


def _code_digest() -> str:
    """The sha256 of the package that measures, file by file."""
    digest = hashlib.sha256()
    package = files("subtext.prosody")
    for file in sorted(package.iterdir(), key=lambda item: item.name):
        if file.name.endswith(".py"):
            digest.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()
