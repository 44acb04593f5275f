"""Repair of an F0 track in semitones: octave folding, smoothing, stray runs; numpy only.

In a voiced run with a step above 6 st, a frame 9 to 15 st from the median of the voiced frames
within 0.25 s is moved by 12 st toward it; then a 5-frame median filter; then voiced runs shorter
than 30 ms become unvoiced. The filter, the folding toward the local median and the 30 ms are the
project's science notes (section 5); the 9 to 15 st window, the 0.25 s neighbourhood and the
restriction to runs with a jump are ours.
"""

from __future__ import annotations

import numpy as np

from subtext.prosody.frames import Floats, Mask

JUMP_ST = 6.0
_OCTAVE_ST = 12.0
_OCTAVE_TOLERANCE_ST = 3.0
_LOCAL_S = 0.25
_SMOOTHING_FRAMES = 2
_MIN_RUN_S = 0.03
_EPSILON = 1e-9


def repair(given_st: Floats, step_s: float) -> tuple[Floats, int, int]:
    """Return the repaired st [n], the frames moved by more than 6 st and the frames dropped.

    `given_st` [n]: semitones re any reference, NaN = unvoiced. No frame becomes voiced.
    """
    away = given_st - _running_median(given_st, round(_LOCAL_S / step_s))
    is_octave = np.abs(np.abs(away) - _OCTAVE_ST) <= _OCTAVE_TOLERANCE_ST
    for start, stop in runs(~np.isnan(given_st)):
        # Without a jump inside the run, the distance is the speaker's own, between two words.
        if not (np.abs(np.diff(given_st[start:stop])) > JUMP_ST).any():
            is_octave[start:stop] = False
    folded = np.where(is_octave, given_st - np.sign(away) * _OCTAVE_ST, given_st)
    smooth = _running_median(folded, _SMOOTHING_FRAMES)
    kept = ~np.isnan(smooth)
    for start, stop in runs(kept):
        if (stop - start) * step_s < _MIN_RUN_S - _EPSILON:
            kept[start:stop] = False
    dropped = int(np.count_nonzero(~np.isnan(smooth) & ~kept))
    fixed = int(np.count_nonzero(kept & (np.abs(smooth - given_st) > JUMP_ST)))
    return np.where(kept, smooth, np.nan), fixed, dropped


def runs(mask: Mask) -> list[tuple[int, int]]:
    """[start, stop) of every run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _running_median(values: Floats, half_width: int) -> Floats:
    """Median over ±half_width frames, NaN left out; NaN stays NaN."""
    padded = np.pad(values, half_width, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half_width + 1)
    result = np.full_like(values, np.nan)
    voiced = np.flatnonzero(~np.isnan(values))
    # NaN sort last, so the median of the others is at their middle: ten times np.nanmedian's speed.
    ordered = np.sort(windows[voiced], axis=1)
    last = np.count_nonzero(~np.isnan(ordered), axis=1) - 1
    rows = np.arange(voiced.size)
    result[voiced] = (ordered[rows, last // 2] + ordered[rows, (last + 1) // 2]) / 2.0
    return result
