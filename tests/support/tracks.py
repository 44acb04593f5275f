"""Frame tracks of a voice whose every measure is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from subtext.prosody.frames import Tracks

N = 200


def tracks(
    f0_hz: Any = None, intensity_db: Any = None, hnr_db: Any = None, **changes: Any
) -> Tracks:
    """Two seconds: a 200 Hz voice at 70 dB with 12 dB HNR, unless told otherwise."""
    made = Tracks(
        f0_hz=np.full(N, 200.0) if f0_hz is None else np.asarray(f0_hz, dtype=np.float64),
        intensity_db=np.full(N, 70.0) if intensity_db is None else np.asarray(intensity_db),
        hnr_db=np.full(N, 12.0) if hnr_db is None else np.asarray(hnr_db),
        start_s=np.array([0.005, 0.005, 0.005]),
        duration_s=2.0,
        pitch_floor_hz=75.0,
        pitch_ceiling_hz=600.0,
    )
    return replace(made, **changes)
