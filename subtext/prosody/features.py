"""Utterance-level prosody from F0, intensity and HNR tracks; numpy only.

Definitions (units stand in the names; st = semitones, 12·log2 of a frequency ratio):

- *Pitch.* Over the voiced frames left by `repair.py`, null when fewer than 5: median in Hz,
  population SD, range = P95 - P5, slope by least squares. The final slope takes the last 0.5 s
  before the last voiced frame; `f0_final_move_st` is the change of that fitted line from the first
  to the last voiced frame of those 0.5 s. `octave_jump_fraction`: share of steps above 6 st between
  adjacent voiced frames, before the repair. `octave_fix_fraction` counts frames the repair moved by
  more than 6 st, `short_run_fraction` frames it dropped, both of the voiced frames as given.
  `f0_edge_fraction`: share of voiced frames within 5 % of floor or ceiling.
- *Speech span.* From the first to the last intensity frame at or above P95 - 25 dB of the clip.
  `voiced_fraction` and the contour are taken inside it.
- *Contour.* `N_SLICES` equal slices of the span, median of each in st relative to the clip's own
  median, in steps of 0.5; null where less than 30 % of the frames are voiced.
- *Pauses.* Runs of at least 150 ms below P95 - 25 dB inside the span. No pause: 0, a measurement.
  `pause_longest_at`: the middle of the (first) longest pause as a share of the span, 0 to 1.
- *Rates.* Syllables of the transcript (`syllables.py`) a second of the span, and a second of the
  span without its pauses; null without a transcript. The terms are de Jong & Wempe's (2009), who
  count nuclei in the sound instead.
- *Intensity SD and range (P95 - P5), and HNR* at F0-voiced frames only (elsewhere they rate the
  background), the tracks aligned by time, since they start at different times; null when fewer than
  5 frames. Both are differences in dB, so the level of the recording falls out.
- *Jitter, shimmer* as given with the tracks, null below 0.5 s of voice.
- *Quality.* `schema.py` lists the flags and their thresholds.

Sources: the definitions and limits are those of the project's science notes (section 5). Ours, and
not from a source: `f0_final_move_st` and `pause_longest_at`. Laughter and music are not removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from subtext.errors import DataError, Problem
from subtext.prosody.frames import Floats, Mask, Tracks, checked
from subtext.prosody.repair import JUMP_ST, repair
from subtext.prosody.schema import record_problems
from subtext.prosody.span import SpeechSpan, speech_span
from subtext.prosody.syllables import count_syllables

N_SLICES = 10
_MIN_FRAMES = 5
_REFERENCE_HZ = 100.0
_FINAL_S = 0.5
_MIN_SLICE_VOICED = 0.3
_MIN_VOICED_S = 0.5
_EDGE = 0.05
_FASTEST_SYLLABLES_PER_S = 50.0
_CLIPPED_FROM = 0.001
_OCTAVE_JUMPS_ABOVE = 0.02
_AT_LIMIT_ABOVE = 0.05
_DECIMALS = 4
_EPSILON = 1e-9


def record_from_tracks(
    tracks: Tracks, where: str = "tracks", utterance: str | None = None
) -> dict[str, Any]:
    """Return the prosody record of one clip: plain JSON values, rounded to 4 decimals.

    `where` names the clip in errors; `utterance` is its transcript. Raises DataError, with every
    problem, for tracks that cannot be measured (no frames, infinities, F0 at or below 0, a track
    longer than the clip), for a transcript of more than 50 syllables a second of speech, and for
    tracks whose record would hold an impossible value.
    """
    f0_hz, intensity_db, hnr_db, start_s = checked(tracks, where)
    step_s = float(tracks.step_s)
    f0_times = start_s[0] + step_s * np.arange(f0_hz.size)
    given_st = 12.0 * np.log2(f0_hz / _REFERENCE_HZ)
    f0_st, fixed, dropped = repair(given_st, step_s)
    voiced = ~np.isnan(f0_st)
    n_given = int(np.count_nonzero(~np.isnan(given_st)))
    # A frame stands for one step, of which the last may reach beyond the clip.
    voiced_s = _rounded(min(step_s * np.count_nonzero(voiced), tracks.duration_s))

    span = speech_span(intensity_db, float(start_s[1]), step_s)
    inside = (f0_times >= span.start_s) & (f0_times <= span.stop_s)
    level_db = _at(f0_times[voiced], intensity_db, start_s[1], step_s)
    has_voice = voiced_s >= _MIN_VOICED_S

    record = {
        "duration_s": _rounded(tracks.duration_s),
        **_pitch(f0_st[voiced], f0_times[voiced]),
        "f0_edge_fraction": _edge_fraction(f0_hz[voiced], tracks),
        "octave_jump_fraction": _jump_fraction(given_st),
        "octave_fix_fraction": _share(fixed, n_given),
        "short_run_fraction": _share(dropped, n_given),
        "voiced_s": voiced_s,
        "voiced_fraction": _share(int(np.count_nonzero(voiced & inside)), int(inside.sum())) or 0.0,
        "intensity_sd_db": _statistic(np.std, level_db),
        "intensity_range_db": _statistic(_range, level_db),
        "hnr_mean_db": _statistic(np.mean, _at(f0_times[voiced], hnr_db, start_s[2], step_s)),
        "jitter_local": _given(tracks.jitter_local) if has_voice else None,
        "shimmer_local": _given(tracks.shimmer_local) if has_voice else None,
        "clipped_fraction": _given(tracks.clipped_fraction),
        **_pauses(span),
        **_rates(utterance, span, where),
        "contour_st": _contour(f0_st, inside),
    }
    record["quality"] = _quality(record)
    if problems := list(record_problems(where, record)):
        raise DataError("Tracks refused", problems)
    return record


def _pitch(st: Floats, times_s: Floats) -> dict[str, float | None]:
    if st.size < _MIN_FRAMES:
        names = ("f0_median_hz", "f0_sd_st", "f0_range_st", "f0_slope_st_per_s")
        return dict.fromkeys((*names, "f0_final_slope_st_per_s", "f0_final_move_st"))
    final = times_s >= times_s[-1] - _FINAL_S - _EPSILON
    final_slope, final_times = _slope(st[final], times_s[final]), times_s[final]
    return {
        "f0_median_hz": _rounded(_REFERENCE_HZ * 2.0 ** (np.median(st) / 12.0)),
        "f0_sd_st": _rounded(np.std(st)),
        "f0_range_st": _rounded(_range(st)),
        "f0_slope_st_per_s": _given(_slope(st, times_s)),
        "f0_final_slope_st_per_s": _given(final_slope),
        "f0_final_move_st": None
        if final_slope is None
        else _rounded(final_slope * (final_times[-1] - final_times[0])),
    }


def _range(values: Floats) -> float:
    low, high = np.percentile(values, [5, 95])
    return float(high - low)


def _slope(st: Floats, times_s: Floats) -> float | None:
    if st.size < _MIN_FRAMES:
        return None
    centred = times_s - times_s.mean()
    return float(np.sum(centred * (st - st.mean())) / np.sum(centred**2))


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


def _pauses(span: SpeechSpan) -> dict[str, Any]:
    lengths_s = [stop - start for start, stop in span.pauses_s]
    longest_s = max(lengths_s, default=0.0)
    at = None
    if lengths_s:
        # The first among equals; their lengths differ in the last bit.
        start, stop = next(
            pause for pause in span.pauses_s if pause[1] - pause[0] > longest_s - _EPSILON
        )
        at = _rounded(((start + stop) / 2 - span.start_s) / (span.stop_s - span.start_s))
    return {
        "pause_count": len(lengths_s),
        "pause_longest_s": _rounded(longest_s),
        "pause_longest_at": at,
        "pause_total_s": _rounded(sum(lengths_s)),
    }


def _rates(utterance: str | None, span: SpeechSpan, where: str) -> dict[str, float | None]:
    names = ("n_syllables", "speech_rate_syllables_per_s", "articulation_rate_syllables_per_s")
    n_syllables = None if utterance is None else count_syllables(utterance)
    if n_syllables is None:
        return dict.fromkeys(names)
    span_s = span.stop_s - span.start_s
    spoken_s = span_s - sum(stop - start for start, stop in span.pauses_s)
    if n_syllables > _FASTEST_SYLLABLES_PER_S * spoken_s:
        problem = f"has {n_syllables} syllables for {spoken_s:.2f} s of speech"
        remedy = "Check that the transcript belongs to the clip and that the clip is complete."
        raise DataError("Tracks refused", [Problem(where, "utterance", utterance, problem, remedy)])
    rates = _rounded(n_syllables / span_s), _rounded(n_syllables / spoken_s)
    return dict(zip(names, (n_syllables, *rates), strict=True))


def _quality(record: dict[str, Any]) -> list[str]:
    flags = {
        "clipped": (record["clipped_fraction"] or 0.0) >= _CLIPPED_FROM,
        "little_voice": record["f0_median_hz"] is not None and record["voiced_s"] < _MIN_VOICED_S,
        "no_voice": record["f0_median_hz"] is None,
        "octave_jumps": (record["octave_jump_fraction"] or 0.0) > _OCTAVE_JUMPS_ABOVE,
        "pitch_at_limit": (record["f0_edge_fraction"] or 0.0) > _AT_LIMIT_ABOVE,
    }
    return sorted(name for name, holds in flags.items() if holds)


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
    return _share(int(np.count_nonzero(steps > JUMP_ST)), steps.size)


def _edge_fraction(f0_hz: Floats, tracks: Tracks) -> float | None:
    low = f0_hz < tracks.pitch_floor_hz * (1 + _EDGE)
    high = f0_hz > tracks.pitch_ceiling_hz * (1 - _EDGE)
    return _share(int(np.count_nonzero(low | high)), f0_hz.size)


def _share(count: int, total: int) -> float | None:
    return _rounded(count / total) if total else None


def _given(value: float | None) -> float | None:
    return None if value is None else _rounded(value)


def _rounded(value: float | np.floating[Any]) -> float:
    return round(float(value), _DECIMALS) + 0.0
