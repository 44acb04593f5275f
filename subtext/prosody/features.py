"""Utterance-level prosody from F0, intensity and HNR tracks; numpy only.

Definitions (units stand in the names; st = semitones, 12·log2 of a frequency ratio):

- *Repair of F0.* In a voiced run with a step above 6 st, a frame 9 to 15 st from the median of
  the voiced frames within 0.25 s is moved by 12 st toward it; then a 5-frame median filter; then
  voiced runs shorter than 30 ms become unvoiced. `octave_fix_fraction` counts frames moved by
  more than 6 st, `short_run_fraction` frames dropped, both of the voiced frames as given.
- *Pitch.* Over the voiced frames left, null when fewer than 5: median in Hz, population SD,
  range = P95 - P5, slope by least squares; the final slope takes the last 0.5 s before the last
  voiced frame. `octave_jump_fraction`: share of steps above 6 st between adjacent voiced frames,
  before the repair. `f0_edge_fraction`: share of voiced frames within 5 % of floor or ceiling.
- *Speech span.* From the first to the last intensity frame at or above P95 - 25 dB of the clip.
  `voiced_fraction` and the contour are taken inside it.
- *Contour.* `N_SLICES` equal slices of the span, median of each in st relative to the clip's own
  median, in steps of 0.5; null where less than 30 % of the frames are voiced.
- *Pauses.* Runs of at least 150 ms below P95 - 25 dB inside the span. No pause: 0, a measurement.
- *Intensity SD and HNR* at F0-voiced frames only (elsewhere they rate the background), the tracks
  aligned by time, since they start at different times; null when fewer than 5 frames.

Sources: the definitions and limits are those of the project's science notes (section 5), which
name De Looze & Hirst for the pitch range that gave floor and ceiling. Ours, and not from a source:
the 9 to 15 st window, the 0.25 s neighbourhood and the restriction of folding to runs with a jump.
Laughter and music are not removed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from subtext.errors import DataError, Problem
from subtext.prosody.schema import EXTRACTOR, SCHEMA

__all__ = ["EXTRACTOR", "N_SLICES", "SCHEMA", "Tracks", "record_from_tracks"]

N_SLICES = 10
_MIN_FRAMES = 5
_REFERENCE_HZ = 100.0
_JUMP_ST = 6.0
_OCTAVE_ST = 12.0
_OCTAVE_TOLERANCE_ST = 3.0
_LOCAL_S = 0.25
_SMOOTHING_FRAMES = 2
_MIN_RUN_S = 0.03
_FINAL_S = 0.5
_SPEECH_BELOW_P95_DB = 25.0
_MIN_PAUSE_S = 0.15
_MIN_SLICE_VOICED = 0.3
_EDGE = 0.05
_DECIMALS = 4
_EPSILON = 1e-9

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Tracks:
    """Frame tracks of one clip, as Praat gives them.

    `f0_hz` [n], NaN = unvoiced; `intensity_db` [m], finite; `hnr_db` [k], NaN = undefined;
    `start_s`: time of the first frame of F0, intensity and HNR, in that order.
    """

    f0_hz: ArrayLike
    intensity_db: ArrayLike
    hnr_db: ArrayLike
    start_s: ArrayLike
    duration_s: float
    pitch_floor_hz: float
    pitch_ceiling_hz: float
    step_s: float = 0.01


def record_from_tracks(tracks: Tracks, where: str = "tracks") -> dict[str, Any]:
    """Return the prosody record of one clip: plain JSON values, rounded to 4 decimals.

    `where` names the clip in errors. Raises DataError, with every problem, for tracks that
    cannot be measured: no frames, infinities, F0 at or below 0, a track longer than the clip.
    """
    f0_hz, intensity_db, hnr_db, start_s = _checked(tracks, where)
    step_s = float(tracks.step_s)
    f0_times = start_s[0] + step_s * np.arange(f0_hz.size)
    given_st = 12.0 * np.log2(f0_hz / _REFERENCE_HZ)
    f0_st, fixed, dropped = _repair(given_st, step_s)
    voiced = ~np.isnan(f0_st)
    n_given = int(np.count_nonzero(~np.isnan(given_st)))

    speech = intensity_db >= np.percentile(intensity_db, 95) - _SPEECH_BELOW_P95_DB
    first, last = np.flatnonzero(speech)[[0, -1]]
    span = start_s[1] + step_s * np.array([first - 0.5, last + 0.5])
    inside = (f0_times >= span[0]) & (f0_times <= span[1])
    pauses_s = _pauses_s(speech[first : last + 1], step_s)

    return {
        "duration_s": _rounded(tracks.duration_s),
        **_pitch(f0_st[voiced], f0_times[voiced]),
        "f0_edge_fraction": _edge_fraction(f0_hz[voiced], tracks),
        "octave_jump_fraction": _jump_fraction(given_st),
        "octave_fix_fraction": _share(fixed, n_given),
        "short_run_fraction": _share(dropped, n_given),
        "voiced_s": _rounded(step_s * np.count_nonzero(voiced)),
        "voiced_fraction": _share(int(np.count_nonzero(voiced & inside)), int(inside.sum())) or 0.0,
        "intensity_sd_db": _statistic(
            np.std, _at(f0_times[voiced], intensity_db, start_s[1], step_s)
        ),
        "hnr_mean_db": _statistic(np.mean, _at(f0_times[voiced], hnr_db, start_s[2], step_s)),
        "pause_count": len(pauses_s),
        "pause_longest_s": _rounded(max(pauses_s, default=0.0)),
        "pause_total_s": _rounded(sum(pauses_s)),
        "contour_st": _contour(f0_st, inside),
    }


def _checked(tracks: Tracks, where: str) -> tuple[Floats, Floats, Floats, Floats]:
    problems: list[Problem] = []
    arrays: list[Floats] = []
    for name in ("f0_hz", "intensity_db", "hnr_db", "start_s"):
        array = np.asarray(getattr(tracks, name))
        if array.ndim != 1 or array.dtype.kind not in "fiu" or not array.size:
            found = f"{array.dtype} array of shape {array.shape}"
            remedy = "Give a one-dimensional array of numbers with at least one frame."
            problems.append(Problem(where, name, found, "is no track", remedy))
        elif np.isinf(array).any():
            problems.append(_bad_frame(where, name, array, np.isinf(array), "is infinite"))
        arrays.append(array.astype(np.float64) if array.dtype.kind in "fiu" else np.empty(0))
    f0_hz, intensity_db, _, start_s = arrays
    if (f0_hz <= 0).any():
        problems.append(_bad_frame(where, "f0_hz", f0_hz, f0_hz <= 0, "is no frequency"))
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
    return f0_hz, intensity_db, arrays[2], start_s


def _scalar_problems(tracks: Tracks, where: str) -> list[Problem]:
    problems = [
        Problem(where, name, getattr(tracks, name), "is not above 0", "Give a positive number.")
        for name in ("duration_s", "step_s", "pitch_floor_hz", "pitch_ceiling_hz")
        if not 0 < getattr(tracks, name) < np.inf
    ]
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


def _repair(given_st: Floats, step_s: float) -> tuple[Floats, int, int]:
    """Return repaired st, the number of frames fixed by octave and the number dropped."""
    away = given_st - _running_median(given_st, round(_LOCAL_S / step_s))
    is_octave = np.abs(np.abs(away) - _OCTAVE_ST) <= _OCTAVE_TOLERANCE_ST
    for start, stop in _runs(~np.isnan(given_st)):
        # Without a jump inside the run, the distance is the speaker's own, between two words.
        if not (np.abs(np.diff(given_st[start:stop])) > _JUMP_ST).any():
            is_octave[start:stop] = False
    folded = np.where(is_octave, given_st - np.sign(away) * _OCTAVE_ST, given_st)
    smooth = _running_median(folded, _SMOOTHING_FRAMES)
    kept = ~np.isnan(smooth)
    for start, stop in _runs(kept):
        if (stop - start) * step_s < _MIN_RUN_S - _EPSILON:
            kept[start:stop] = False
    dropped = int(np.count_nonzero(~np.isnan(smooth) & ~kept))
    fixed = int(np.count_nonzero(kept & (np.abs(smooth - given_st) > _JUMP_ST)))
    return np.where(kept, smooth, np.nan), fixed, dropped


def _running_median(values: Floats, half_width: int) -> Floats:
    """Median over ±half_width frames, NaN left out; NaN stays NaN."""
    padded = np.pad(values, half_width, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half_width + 1)
    result = np.full_like(values, np.nan)
    voiced = ~np.isnan(values)
    if voiced.any():
        result[voiced] = np.nanmedian(windows[voiced], axis=1)
    return result


def _runs(mask: Mask) -> list[tuple[int, int]]:
    """[start, stop) of every run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _pitch(st: Floats, times_s: Floats) -> dict[str, float | None]:
    if st.size < _MIN_FRAMES:
        names = ("f0_median_hz", "f0_sd_st", "f0_range_st", "f0_slope_st_per_s")
        return dict.fromkeys((*names, "f0_final_slope_st_per_s"))
    low, high = np.percentile(st, [5, 95])
    final = times_s >= times_s[-1] - _FINAL_S - _EPSILON
    return {
        "f0_median_hz": _rounded(_REFERENCE_HZ * 2.0 ** (np.median(st) / 12.0)),
        "f0_sd_st": _rounded(np.std(st)),
        "f0_range_st": _rounded(high - low),
        "f0_slope_st_per_s": _slope(st, times_s),
        "f0_final_slope_st_per_s": _slope(st[final], times_s[final]),
    }


def _slope(st: Floats, times_s: Floats) -> float | None:
    if st.size < _MIN_FRAMES:
        return None
    centred = times_s - times_s.mean()
    return _rounded(np.sum(centred * (st - st.mean())) / np.sum(centred**2))


def _contour(f0_st: Floats, inside: Mask) -> list[float | None]:
    voiced_st = f0_st[~np.isnan(f0_st)]
    if voiced_st.size < _MIN_FRAMES:
        return [None] * N_SLICES
    relative = f0_st[inside] - np.median(voiced_st)
    return [_slice_st(part) for part in np.array_split(relative, N_SLICES)]


def _slice_st(part: Floats) -> float | None:
    voiced = part[~np.isnan(part)]
    if not voiced.size or voiced.size < _MIN_SLICE_VOICED * part.size:
        return None
    return float(np.round(2.0 * np.median(voiced)) / 2.0) + 0.0


def _pauses_s(speech: Mask, step_s: float) -> list[float]:
    lengths = [(stop - start) * step_s for start, stop in _runs(~speech)]
    return [length for length in lengths if length >= _MIN_PAUSE_S - _EPSILON]


def _at(times_s: Floats, values: Floats, start_s: float, step_s: float) -> Floats:
    """The defined frames of a track that lie nearest to `times_s`."""
    index = np.rint((times_s - start_s) / step_s).astype(int)
    found: Floats = values[index[(index >= 0) & (index < values.size)]]
    return found[~np.isnan(found)]


def _statistic(function: Callable[[Floats], float], values: Floats) -> float | None:
    return _rounded(function(values)) if values.size >= _MIN_FRAMES else None


def _jump_fraction(st: Floats) -> float | None:
    steps = np.abs(np.diff(st))
    steps = steps[~np.isnan(steps)]
    return _share(int(np.count_nonzero(steps > _JUMP_ST)), steps.size)


def _edge_fraction(f0_hz: Floats, tracks: Tracks) -> float | None:
    low = f0_hz < tracks.pitch_floor_hz * (1 + _EDGE)
    high = f0_hz > tracks.pitch_ceiling_hz * (1 - _EDGE)
    return _share(int(np.count_nonzero(low | high)), f0_hz.size)


def _share(count: int, total: int) -> float | None:
    return _rounded(count / total) if total else None


def _rounded(value: float | np.floating[Any]) -> float:
    return round(float(value), _DECIMALS) + 0.0
