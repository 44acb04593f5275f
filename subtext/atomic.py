"""Files written in one step: a reader sees the old content or the new one, whatever happens."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`: temporary file, fsync, rename. Makes missing folders.

    A file that holds just that stays untouched, its date too. A link keeps pointing at the file,
    whose content changes. Raises OSError that names the file (or a folder that can't be made),
    FileExistsError where something other than a file is there: renaming would replace even a device
    such as /dev/null.
    """
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "something that is no regular file is there", str(path))
    target = Path(os.path.realpath(path))
    if target.is_file() and target.read_bytes() == content:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        _replace(target, content)
    except OSError as error:
        # A full disk names no file, a folder without rights the temporary one.
        raise OSError(error.errno, error.strerror, str(target)) from error


def _replace(target: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
