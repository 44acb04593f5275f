"""The frame tracks of one clip, and the check that they can be measured; numpy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from subtext.errors import DataError, Problem

_MAX_DB = 400.0  # beyond what any measurement gives; Praat's digital silence is -300 dB
_MAX_HZ = 10_000.0
_SHORTEST_STEP_S, _LONGEST_STEP_S = 0.001, 0.1

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Tracks:
    """Frame tracks of one clip, as Praat gives them.

    `f0_hz` [n], NaN = unvoiced; `intensity_db` [m], finite; `hnr_db` [k], NaN = undefined;
    `start_s`: time of the first frame of F0, intensity and HNR, in that order. What no track can
    hold is measured with them: `jitter_local`, `shimmer_local` (ratios, None = not measured) and
    `clipped_fraction` (share of samples at the limit, None = no samples were seen).
    """

    f0_hz: ArrayLike
    intensity_db: ArrayLike
    hnr_db: ArrayLike
    start_s: ArrayLike
    duration_s: float
    pitch_floor_hz: float
    pitch_ceiling_hz: float
    step_s: float = 0.01
    jitter_local: float | None = None
    shimmer_local: float | None = None
    clipped_fraction: float | None = None


def checked(tracks: Tracks, where: str) -> tuple[Floats, Floats, Floats, Floats]:
    """Return F0, intensity, HNR and start times as float arrays.

    Raises DataError, with every problem, for what is no track, infinities, F0 at or below 0 or
    levels beyond ±400 dB, steps outside 1 to 100 ms and a track longer than the clip.
    """
    problems: list[Problem] = []
    arrays: list[Floats] = []
    for name in ("f0_hz", "intensity_db", "hnr_db", "start_s"):
        array = np.asarray(getattr(tracks, name))
        numbers = array.dtype.kind in "fiu"
        if array.ndim != 1 or not numbers or not array.size:
            found = f"{array.dtype} array of shape {array.shape}"
            remedy = "Give a one-dimensional array of numbers with at least one frame."
            problems.append(Problem(where, name, found, "is no track", remedy))
        elif np.isinf(array).any():
            problems.append(_bad_frame(where, name, array, np.isinf(array), "is infinite"))
        elif name.endswith("_db") and (beyond := np.abs(array) > _MAX_DB).any():
            problems.append(_bad_frame(where, name, array, beyond, "is no level in dB"))
        arrays.append(array.astype(np.float64) if numbers else np.empty(0))
    f0_hz, intensity_db, hnr_db, start_s = arrays
    if (beyond := (f0_hz <= 0) | (np.isfinite(f0_hz) & (f0_hz > _MAX_HZ))).any():
        problems.append(_bad_frame(where, "f0_hz", f0_hz, beyond, "is no frequency of a voice"))
    if np.isnan(intensity_db).any():
        bad = np.isnan(intensity_db)
        problems.append(_bad_frame(where, "intensity_db", intensity_db, bad, "is not a number"))
    if start_s.shape != (3,) or not np.isfinite(start_s).all() or (start_s < 0).any():
        remedy = "Give the time of the first frame of F0, intensity and HNR, in seconds."
        problems.append(Problem(where, "start_s", start_s.tolist(), "is not 3 times", remedy))
    problems += _scalar_problems(tracks, where)
    if not problems:
        problems += _length_problems(tracks, where, arrays)
    if problems:
        raise DataError("Tracks refused", problems)
    return f0_hz, intensity_db, hnr_db, start_s


def _scalar_problems(tracks: Tracks, where: str) -> list[Problem]:
    problems = [
        Problem(where, name, getattr(tracks, name), "is not above 0", "Give a positive number.")
        for name in ("duration_s", "step_s", "pitch_floor_hz", "pitch_ceiling_hz")
        if not 0 < getattr(tracks, name) < np.inf
    ]
    for name in ("jitter_local", "shimmer_local", "clipped_fraction"):
        ratio = getattr(tracks, name)
        if ratio is not None and not 0 <= ratio < np.inf:
            remedy = "Give a ratio of 0 or more, or None where none was measured."
            problems.append(Problem(where, name, ratio, "is no ratio", remedy))
    if not problems and not _SHORTEST_STEP_S <= tracks.step_s <= _LONGEST_STEP_S:
        remedy = f"Measure with a step of {_SHORTEST_STEP_S} to {_LONGEST_STEP_S} s; 0.01 is usual."
        problems.append(Problem(where, "step_s", tracks.step_s, "is out of range", remedy))
    if not problems and tracks.pitch_floor_hz >= tracks.pitch_ceiling_hz:
        remedy = f"Give a floor below the ceiling of {tracks.pitch_ceiling_hz} Hz."
        problem = "is not below the ceiling"
        problems.append(Problem(where, "pitch_floor_hz", tracks.pitch_floor_hz, problem, remedy))
    return problems


def _length_problems(tracks: Tracks, where: str, arrays: list[Floats]) -> list[Problem]:
    ends_s = [arrays[3][i] + tracks.step_s * (arrays[i].size - 1) for i in range(3)]
    return [
        Problem(
            where, name, round(float(end_s), 3),
            f"the track's last frame lies after the clip's end at {tracks.duration_s} s",
            "Check duration_s, step_s and start_s.",
        )
        for name, end_s in zip(("f0_hz", "intensity_db", "hnr_db"), ends_s, strict=True)
        if end_s > tracks.duration_s + tracks.step_s
    ]  # fmt: skip


def _bad_frame(where: str, name: str, array: Floats, bad: Mask, problem: str) -> Problem:
    index = int(np.flatnonzero(bad)[0])
    remedy = "Measure the track again; an unvoiced or undefined frame is NaN in f0_hz and hnr_db."
    return Problem(where, f"{name}[{index}]", float(array[index]), problem, remedy)
