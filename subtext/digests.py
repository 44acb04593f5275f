"""The sha256 of files, by which weights, sounds and archives are known again."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sha256_of(*files: Path) -> str:
    """Return the sha256 of the content of `files`, one after the other, in hex. Raises OSError."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            hashlib.file_digest(stream, lambda: digest)
    return digest.hexdigest()
