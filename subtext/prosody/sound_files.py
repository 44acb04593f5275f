"""Which files are sound, and which of them belong to a clip: `<clip_id>.<suffix>`, in any case."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from subtext.errors import DataError, Problem

AUDIO_SUFFIXES = (".flac", ".wav", ".mp3", ".ogg", ".opus", ".m4a", ".mp4", ".mkv", ".webm")


def is_sound_file(path: Path) -> bool:
    """Whether the name is that of a sound or video file; hidden ones are half written."""
    return path.suffix.lower() in AUDIO_SUFFIXES and not path.name.startswith(".")


def sound_files(folder: Path) -> dict[str, list[Path]]:
    """Return the sound files in `folder` by clip id, sorted; empty where there is no folder."""
    files: dict[str, list[Path]] = defaultdict(list)
    if folder.is_dir():
        for path in sorted(filter(is_sound_file, folder.iterdir())):
            files[path.stem].append(path)
    return dict(files)


def find_audio(folder: Path, clip_id: str) -> Path:
    """Return the sound file of a clip. Raises DataError when there is none, or more than one."""
    return only_file(folder, clip_id, sound_files(folder))


def only_file(folder: Path, clip_id: str, files: Mapping[str, list[Path]]) -> Path:
    """Return `find_audio(folder, clip_id)`, where `files` is `sound_files(folder)`, read once for
    many clips."""
    found = files.get(clip_id, [])
    if len(found) == 1:
        return found[0]
    where = f"clip {clip_id}"
    if found:
        names = [path.name for path in found]
        problem = Problem(
            where, "audio", names, f"{len(found)} files in {folder} belong to one clip", "Keep one."
        )
    else:
        problem = Problem(
            where, "audio", str(folder / clip_id), "no sound file is there",
            f"Put the clip's sound there, with one of {', '.join(AUDIO_SUFFIXES)}.",
        )  # fmt: skip
    raise DataError("Audio refused", [problem])
