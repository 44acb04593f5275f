"""The stretch of a clip in which somebody speaks, and its pauses, by intensity; numpy only.

Speech is what stands at or above P95 - 25 dB of the clip; the span goes from the first such frame
to the last; a pause is a run of at least 150 ms below inside it (the project's science notes,
section 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from subtext.prosody.frames import Floats
from subtext.prosody.repair import runs

SPEECH_BELOW_P95_DB = 25.0
MIN_PAUSE_S = 0.15
_EPSILON = 1e-9


@dataclass(frozen=True)
class SpeechSpan:
    """`start_s` and `stop_s` of the speech, and `pauses_s`: start and stop of each pause."""

    start_s: float
    stop_s: float
    pauses_s: tuple[tuple[float, float], ...]


def speech_span(intensity_db: Floats, start_s: float, step_s: float) -> SpeechSpan:
    """Return the span of an intensity track [n] >= 1, finite, whose first frame is at `start_s`.

    A frame stands for one step, half to each side of its time.
    """
    speech = intensity_db >= np.percentile(intensity_db, 95) - SPEECH_BELOW_P95_DB
    first, last = np.flatnonzero(speech)[[0, -1]]
    origin_s = start_s + step_s * (float(first) - 0.5)
    return SpeechSpan(
        origin_s,
        start_s + step_s * (float(last) + 0.5),
        tuple(
            (origin_s + step_s * start, origin_s + step_s * stop)
            for start, stop in runs(~speech[first : last + 1])
            if (stop - start) * step_s >= MIN_PAUSE_S - _EPSILON
        ),
    )
