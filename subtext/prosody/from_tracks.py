"""Prosody records from stored tracks: `<name>.npz` and, beside it, `<name>.json`.

The npz holds `<clip_id>/f0_hz`, `/intensity_db`, `/hnr_db` and `/start_s`; the JSON maps a clip
id to `duration_s`, `pitch_floor_hz` and `pitch_ceiling_hz`. The step is 10 ms. Tracks hold no
jitter, shimmer or clipping, so these are null.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from subtext import strict_json
from subtext.errors import DataError, Problem, reason_of
from subtext.prosody.features import record_from_tracks
from subtext.prosody.frames import Tracks
from subtext.prosody.schema import SCHEMA, TRACKS_EXTRACTOR, is_number

_ARRAYS = ("f0_hz", "intensity_db", "hnr_db", "start_s")
_SCALARS = ("duration_s", "pitch_floor_hz", "pitch_ceiling_hz")
_TITLE = "Tracks refused"


def records_from_npz(npz: Path, utterances: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the content of prosody.json for every clip in `npz`, ids in string order.

    `utterances`: clip id to transcript, for the rates; without it they are null. Raises DataError,
    with every problem, for a file that is missing or unreadable, a clip that stands in only one of
    the two files or has no transcript, and tracks that cannot be measured.
    """
    npz = Path(npz)
    arrays, details = _read_arrays(npz), _read_details(npz.with_suffix(".json"))
    problems: list[Problem] = []
    records: dict[str, Any] = {}
    for clip_id in sorted(arrays.keys() | details.keys()):
        where = f"{npz.name}, clip {clip_id}"
        given = arrays.get(clip_id, {})
        found = _clip_problems(where, npz, given, details.get(clip_id))
        utterance = None if utterances is None else utterances.get(clip_id)
        if utterances is not None and utterance is None:
            remedy = "Add the clip to the file of clips, or leave that file out."
            found.append(Problem(where, "utterance", None, "is missing", remedy))
        if not found:
            detail = details[clip_id]
            tracks = Tracks(
                given["f0_hz"], given["intensity_db"], given["hnr_db"], given["start_s"],
                detail["duration_s"], detail["pitch_floor_hz"], detail["pitch_ceiling_hz"],
            )  # fmt: skip
            try:
                records[clip_id] = record_from_tracks(tracks, where, utterance)
            except DataError as error:
                found = list(error.problems)
        problems += found
    if problems:
        raise DataError(_TITLE, problems)
    return {"schema": SCHEMA, "extractor": TRACKS_EXTRACTOR, "clips": records}


def _read_arrays(npz: Path) -> dict[str, dict[str, np.ndarray]]:
    arrays: dict[str, dict[str, np.ndarray]] = {}
    try:
        stored = _load(npz)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise ValueError("a single array, not an archive")
        with stored:
            for key in stored.files:
                clip_id, _, name = key.rpartition("/")
                arrays.setdefault(clip_id, {})[name] = _array(stored, key)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        remedy = "Give an .npz archive with <clip_id>/f0_hz and so on, e.g. tracks_210.npz."
        raise DataError(_TITLE, [_unreadable(npz, error, remedy)]) from error
    if not arrays:
        raise DataError(
            _TITLE, [Problem(str(npz), "content", [], "holds no arrays", "Give another file.")]
        )
    return arrays


def _load(npz: Path) -> Any:
    try:
        return np.load(npz, allow_pickle=False)
    except ValueError:
        # numpy takes an unknown file for pickled objects and advises to run them.
        raise ValueError("it is no .npz archive") from None


def _array(stored: Mapping[str, Any], key: str) -> np.ndarray:
    try:
        array = stored[key]
    except ValueError:
        raise ValueError(f"{key} is no array of numbers") from None
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{key} is no array")
    return array


def _read_details(path: Path) -> dict[str, Any]:
    try:
        details = strict_json.read(path)
        if not isinstance(details, dict):
            raise ValueError("not an object keyed by clip id")
    except (OSError, ValueError) as error:
        remedy = "It must stand beside the .npz and map a clip id to " + ", ".join(_SCALARS) + "."
        raise DataError(_TITLE, [_unreadable(path, error, remedy)]) from error
    return details


def _clip_problems(
    where: str, npz: Path, given: dict[str, np.ndarray], detail: object
) -> list[Problem]:
    problems = [
        Problem(
            where, name, None, "is missing", f"Add the array, or remove the clip from {npz.name}."
        )
        for name in _ARRAYS
        if name not in given
    ]
    problems += [
        Problem(where, name, str(given[name].dtype), "is no known array", f"Known: {_ARRAYS}.")
        for name in given
        if name not in _ARRAYS
    ]
    where = where.replace(npz.name, npz.with_suffix(".json").name, 1)
    if not isinstance(detail, dict):
        remedy = "Add an object with " + ", ".join(_SCALARS) + "."
        return [
            *problems,
            Problem(where, "clip", detail, "has no duration and pitch range", remedy),
        ]
    problems += [
        Problem(where, name, detail.get(name), "is not a number", "Give it in seconds or hertz.")
        for name in _SCALARS
        if not is_number(detail.get(name))
    ]
    return problems


def _unreadable(path: Path, error: Exception, remedy: str) -> Problem:
    said = f"can't be read: {reason_of(error)}"
    return Problem("prosody from-tracks", "file", str(path), said, remedy)
