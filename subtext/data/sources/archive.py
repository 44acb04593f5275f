"""Taking the clips out of the authors' archive, and nothing else.

mmsd_raw_data.zip holds `utterances_final/<clip id>.mp4`, beside them the context clips. A member is
taken when its folder's name starts with `utterances` and its stem is a clip id; it becomes
`<clip id>.mp4` in the folder of sounds, so that the member's own path is never used to write.
"""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from subtext.data.sources.download import disk_error, require_space
from subtext.errors import DataError, Problem
from subtext.progress import Progress, Watcher, nobody
from subtext.prosody.sound_files import sound_files

CLIPS_FOLDER = "utterances"  # how its name begins
CLIP_SUFFIX = ".mp4"
_ENCRYPTED = 0x1
_MAX_CLIP_BYTES = 256 * 2**20
_MAX_TOTAL_BYTES = 32 * 2**30
_MAX_RATIO = 100  # video hardly shrinks; deflate's limit is about 1000
_BLOCK_BYTES = 2**20
# What zipfile raises for damage, OSError where a wrong offset makes it seek to nowhere.
_NO_ARCHIVE = (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, EOFError)
_UNREADABLE = (*_NO_ARCHIVE, zlib.error, RuntimeError)


@dataclass(frozen=True)
class Extraction:
    """What became of the archive: `n_clips` have a sound file, `missing` have none (sorted ids);
    `n_new` files were written now, `refused` says which members were not taken and why."""

    n_clips: int
    missing: tuple[str, ...]
    n_new: int
    refused: tuple[Problem, ...]


def extract_clips(
    archive: Path, folder: Path, clip_ids: Collection[str], watcher: Watcher = nobody
) -> Extraction:
    """Write the sound of every clip in `archive` to `folder/<clip id>.mp4`.

    A file that is there with the member's size and CRC is kept, and so is another sound file of
    that clip; each new one is written under a temporary name first. A member that can't be trusted
    or read is listed and stops nothing. Raises DataError when the archive as a whole can't be read
    or unpacks to more than 32 GiB, or the disk is full.
    """
    try:
        opened = zipfile.ZipFile(archive)
    except (*_NO_ARCHIVE, OSError) as error:
        problem = Problem(
            archive.name, "file", str(archive), f"is no archive that can be read: {error}",
            "Delete it and fetch again.",
        )  # fmt: skip
        raise DataError("Archive refused", [problem]) from error
    with opened:
        members, refused = choose_members(opened, set(clip_ids))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            n_new = _write(opened, members, folder, refused, watcher)
        except OSError as error:
            raise disk_error(folder, error) from error
    missing = sorted(set(clip_ids) - _with_sound(folder))
    return Extraction(len(clip_ids) - len(missing), tuple(missing), n_new, tuple(refused))


def choose_members(
    archive: zipfile.ZipFile, clip_ids: Collection[str]
) -> tuple[dict[str, zipfile.ZipInfo], list[Problem]]:
    """Return the member of each clip that can be taken, and a problem for each that can't.

    Members that belong to no clip are passed over in silence, unless their path leaves the folder.
    """
    chosen: dict[str, zipfile.ZipInfo] = {}
    refused: list[Problem] = []
    for member in archive.infolist():
        path = PurePosixPath(member.filename.replace("\\", "/"))
        clip_id = path.stem
        wanted = (
            path.suffix.lower() == CLIP_SUFFIX
            and path.parent.name.startswith(CLIPS_FOLDER)
            and clip_id in clip_ids
            and not member.is_dir()
        )
        if _leaves(path):
            refused.append(_refusal(archive, member, "its path leads out of the folder"))
        elif wanted and (reason := _distrust(member)):
            refused.append(_refusal(archive, member, reason))
        elif wanted and (first := chosen.get(clip_id)) is not None:
            if (first.CRC, first.file_size) != (member.CRC, member.file_size):
                reason = f"{first.filename} holds another sound of clip {clip_id}"
                refused.append(_refusal(archive, member, reason))
        elif wanted:
            chosen[clip_id] = member
    total = sum(member.file_size for member in chosen.values())
    if total > _MAX_TOTAL_BYTES:
        problem = Problem(
            str(archive.filename), "bytes", total, f"unpacks to more than {_MAX_TOTAL_BYTES}",
            "This is not the authors' archive: delete it.",
        )  # fmt: skip
        raise DataError("Archive refused", [problem])
    return chosen, refused


def _leaves(path: PurePosixPath) -> bool:
    return path.is_absolute() or ".." in path.parts or any(":" in part for part in path.parts)


def _distrust(member: zipfile.ZipInfo) -> str:
    """The reason not to take a clip's member; "": none."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        return "it is a link or device, not a regular file"
    if member.flag_bits & _ENCRYPTED:
        return "it is encrypted"
    if member.file_size == 0:
        return "it is empty"
    if member.file_size > _MAX_CLIP_BYTES:
        return f"its {member.file_size} bytes are more than the {_MAX_CLIP_BYTES} of any clip"
    if member.file_size > _MAX_RATIO * max(member.compress_size, 1):
        return f"it grows more than {_MAX_RATIO} times when unpacked, as no video does"
    return ""


def _refusal(archive: zipfile.ZipFile, member: zipfile.ZipInfo, reason: str) -> Problem:
    return Problem(
        Path(str(archive.filename)).name, "member", member.filename, f"was not taken: {reason}",
        "Delete the archive and fetch again; if it stays so, tell its authors.",
    )  # fmt: skip


def _write(
    archive: zipfile.ZipFile,
    members: dict[str, zipfile.ZipInfo],
    folder: Path,
    refused: list[Problem],
    watcher: Watcher,
) -> int:
    """Write the members that are not there yet and return how many that were."""
    there = _with_sound(folder)
    new = {
        clip_id: member
        for clip_id, member in members.items()
        if clip_id not in there or _is_another(folder / f"{clip_id}{CLIP_SUFFIX}", member)
    }
    needed = sum(member.file_size for member in new.values())
    require_space(folder, needed, f"the clips in {archive.filename}")
    n_new, n_kept = 0, len(members) - len(new)
    for index, (clip_id, member) in enumerate(new.items(), start=1):
        try:
            _write_one(archive, member, folder / f"{clip_id}{CLIP_SUFFIX}")
            n_new += 1
        except _UNREADABLE as error:
            reason = str(error) or type(error).__name__
            refused.append(_refusal(archive, member, f"it can't be read: {reason}"))
        watcher(Progress("unpack", n_kept + index, len(members)))
    return n_new


def _write_one(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> None:
    try:
        source = archive.open(member)
    except OSError as error:
        raise EOFError(str(error)) from error
    temporary = path.with_name(f".{path.name}.part")
    temporary.unlink(missing_ok=True)  # a link of that name would be written through
    try:
        # zipfile gives at most the declared size and checks the CRC at its end.
        with source, temporary.open("xb") as sink:
            while block := source.read(_BLOCK_BYTES):
                sink.write(block)
        if temporary.stat().st_size != member.file_size:
            raise EOFError("it is shorter than declared")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _is_another(path: Path, member: zipfile.ZipInfo) -> bool:
    """Whether a file is there that is not `member`; a clip's sound may be under another name."""
    if not path.is_file():
        return False
    return path.stat().st_size != member.file_size or _crc32(path) != member.CRC


def _with_sound(folder: Path) -> set[str]:
    files = sound_files(folder)
    return {clip_id for clip_id in files if any(path.is_file() for path in files[clip_id])}


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
    return crc
