"""Fetching a corpus from the places that `data/sources.toml` pins.

Files with a known sha256 are downloaded as they are. For the clips' archive neither revision nor
hash was known to the authors of that file: the first fetch asks the Hub, records the answer in
`sources.lock.json` beside the data before it downloads a byte, and is held to it ever after.
"""

from __future__ import annotations

import logging
import shlex
import tomllib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from subtext import strict_json
from subtext.data.folder import AUDIO_FOLDER, CLIPS_FILE
from subtext.data.scenarios import load_clips
from subtext.data.sources.archive import CLIP_SUFFIX, CLIPS_FOLDER, Extraction, extract_clips
from subtext.data.sources.download import Wanted, disk_error, download
from subtext.data.sources.hub_archive import (
    Closed,
    HubArchive,
    Locked,
    Name,
    Sha256,
    resolve,
    wanted_archive,
)
from subtext.data.sources.patience import Patience, persistently
from subtext.errors import DataError, Problem, reason_of
from subtext.paths import project_root
from subtext.progress import Watcher, nobody
from subtext.validation import problems_of

SOURCES_FILE = "data/sources.toml"
LOCK_FILE = "sources.lock.json"
_BUSY_FILE = ".fetch.lock"
_SHOWN_CLIPS = 20

logger = logging.getLogger(__name__)


class PinnedFile(Closed):
    """A file whose content is known: `size` in bytes and `sha256` of what `url` gives."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://")]
    size: int = Field(gt=0)
    sha256: Sha256


class Corpus(Closed):
    """One corpus of sources.toml. `files` are named as they are saved."""

    title: str
    citation: str
    licences: tuple[str, ...]
    files: dict[Name, PinnedFile]
    clips: HubArchive


class _Lock(Closed):
    schema_: Literal["subtext.sources-lock/1"] = Field("subtext.sources-lock/1", alias="schema")
    clips: Locked


class _Sources(Closed):
    mustard: Corpus


@dataclass(frozen=True)
class Fetched:
    """What a fetch left in `root`; `clips` and `extraction` are None for annotations only."""

    root: Path
    files: tuple[str, ...]
    clips: Locked | None
    extraction: Extraction | None


def read_corpus(sources: Path | None = None) -> Corpus:
    """Return MUStARD's entry of `sources`, else of data/sources.toml in the checkout.

    Raises DataError when the file is missing or is not what it must be.
    """
    path = sources or project_root() / SOURCES_FILE
    remedy = f"Start from a checkout of Subtext; {SOURCES_FILE} comes with it."
    try:
        return _Sources.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).mustard
    except ValidationError as error:
        raise DataError("Sources refused", list(problems_of(path.name, error, remedy))) from None
    except (OSError, ValueError) as error:
        raise DataError("Sources refused", [_unreadable(path, error, remedy)]) from error


def summary(fetched: Fetched) -> str:
    """What there is now and what to do next, for a terminal."""
    root = _shown(fetched.root)
    lines = [f"In {root}: {', '.join(fetched.files)}"]
    if fetched.clips is not None:
        lines.append(
            f"Archive: {fetched.clips.repo} at {fetched.clips.revision}, sha256 "
            f"{fetched.clips.sha256}, held to by {LOCK_FILE}"
        )
    if (extraction := fetched.extraction) is not None:
        n_missing = len(extraction.missing)
        lines.append(
            f"Clips with sound: {extraction.n_clips} of {extraction.n_clips + n_missing} in "
            f"{root}/{AUDIO_FOLDER}, {extraction.n_new} of them new"
        )
        if n_missing:
            more = f" and {n_missing - _SHOWN_CLIPS} more" if n_missing > _SHOWN_CLIPS else ""
            lines.append(f"Without: {', '.join(extraction.missing[:_SHOWN_CLIPS])}{more}")
        lines += [f"Refused: {problem}" for problem in extraction.refused[:_SHOWN_CLIPS]]
        lines.append(f"Next: python -m flows.data_flow --root {shlex.quote(root)}")
    else:
        lines.append(f"Next: the clips, with subtext data fetch mustard --root {shlex.quote(root)}")
    return "\n".join(lines)


def _shown(path: Path) -> str:
    home = project_root()
    return str(path.relative_to(home) if path.is_relative_to(home) else path)


def fetch(
    root: Path,
    *,
    annotations_only: bool = False,
    sources: Path | None = None,
    watcher: Watcher = nobody,
    patience: Patience | None = None,
) -> Fetched:
    """Bring MUStARD into `root`: its annotations, and the sound of its clips in `root/audio`.

    What is there and right is kept; what was begun is continued. `watcher` sees stages "fetch"
    (bytes) and "unpack" (clips). One process at a time works in a folder; others wait. Raises
    DataError, also where no clip has a sound afterwards; those that are DownloadErrors say in
    `retryable` whether another try can help.
    """
    corpus = read_corpus(sources)
    patience = patience or Patience()
    with _alone_in(root):
        for name, file in corpus.files.items():
            wanted = Wanted(file.url, root / name, file.size, file.sha256)
            download(wanted, patience=patience)
        if annotations_only:
            return Fetched(root, tuple(corpus.files), None, None)
        clips = load_clips(root / CLIPS_FILE)
        locked = _locked(root, corpus.clips, patience)
        archive = root / locked.file
        if_changed = (
            f"{root / LOCK_FILE} holds what the first fetch found: if you trust the change, delete "
            "that file and fetch again."
        )
        download(wanted_archive(locked, archive, if_changed), watcher, patience)
        extraction = extract_clips(archive, root / AUDIO_FOLDER, clips, watcher)
    if not extraction.n_clips:
        raise DataError("Archive refused", [_no_clip(archive, clips), *extraction.refused])
    return Fetched(root, (*corpus.files, locked.file), locked, extraction)


def _no_clip(archive: Path, clips: Collection[str]) -> Problem:
    return Problem(
        archive.name, "file", str(archive), f"holds the sound of none of {len(clips)} clips",
        f"It is empty or laid out in another way than {CLIPS_FOLDER}…/<clip id>{CLIP_SUFFIX}: see "
        "the repository's page, or put sounds into "
        f"{archive.parent / AUDIO_FOLDER} yourself, named as the clips.",
    )  # fmt: skip


@contextmanager
def _alone_in(root: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / _BUSY_FILE)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.warning("Another process fetches into %s: waiting until it is done", root)
            lock.acquire()
    except OSError as error:
        raise disk_error(root, error) from error
    try:
        yield
    finally:
        lock.release()


def _locked(root: Path, clips: HubArchive, patience: Patience) -> Locked:
    """Return what the lock file says, after asking the Hub and writing it where there is none."""
    path = root / LOCK_FILE
    remedy = f"Delete {path} to accept what the Hub has now, then fetch again."
    try:
        locked = _Lock.model_validate(strict_json.read(path)).clips
    except FileNotFoundError:
        locked = persistently(lambda: resolve(clips), patience)
        content = _Lock(clips=locked).model_dump(by_alias=True)
        try:
            strict_json.write(path, content)
        except OSError as error:
            raise disk_error(path, error) from error
        return locked
    except ValidationError as error:
        raise DataError("Lock file refused", list(problems_of(path.name, error, remedy))) from None
    except (OSError, ValueError) as error:
        raise DataError("Lock file refused", [_unreadable(path, error, remedy)]) from error
    if (locked.repo, locked.file) != (clips.repo, clips.file):
        problem = Problem(
            path.name, "clips", f"{locked.repo}/{locked.file}",
            f"is not {clips.repo}/{clips.file} of {SOURCES_FILE}", remedy,
        )  # fmt: skip
        raise DataError("Lock file refused", [problem])
    return locked


def _unreadable(path: Path, error: OSError | ValueError, remedy: str) -> Problem:
    return Problem(path.name, "file", str(path), f"can't be read: {reason_of(error)}", remedy)
