"""Frame tracks of a sound with Praat, through parselmouth.

- *F0.* Autocorrelation (Boersma 1993), 10 ms step, Praat's standard costs (octave jump 0.35), in
  two passes after De Looze & Hirst: 60-600 Hz, then floor max(60, 0.75·Q1) and ceiling
  min(700, 2.5·Q3) of the first pass's voiced frames, both rounded to 0.1 Hz. Without a voiced frame
  the first pass stands. 2.5 is Hirst's factor for expressive speech; with 1.5, that for ordinary
  speech, the top of a wide rise is heard an octave low.
- *Intensity.* dB re 20 µPa with samples in ±1 read as pascal, minimum pitch 75 Hz, mean subtracted,
  10 ms step.
- *HNR.* Cross-correlation harmonicity, minimum pitch 75 Hz, silence threshold 0.1, one period a
  window, 10 ms step; NaN where undefined and away from F0-voiced frames, where nobody reads it. It
  is most of the cost, so Praat sees silence there; the values that stay are the same to the bit.
- *Jitter, shimmer (local).* From the pulses that the second pass guides (Praat's "To PointProcess
  (cc)"); periods 0.1-20 ms, maximum period factor 1.3, maximum amplitude factor 1.6, which are
  Praat's standard values.

The settings are those behind the 210 MUStARD clips measured for the project, but for two: the
ceiling there was 1.5·Q3, at least twice the floor, and the pulses came from a pitch search of
their own, 75-600 Hz.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from subtext.errors import DataError, Problem
from subtext.prosody.frames import Floats, Mask, Tracks

if TYPE_CHECKING:
    from subtext.prosody.audio import Sound

STEP_S = 0.01
SHORTEST_S = 0.1
_FIRST_FLOOR_HZ, _FIRST_CEILING_HZ = 60.0, 600.0
_HIGHEST_CEILING_HZ = 700.0
_FLOOR_FACTOR, _CEILING_FACTOR = 0.75, 2.5
_LOWEST_PITCH_HZ = 75.0  # of the windows of intensity and harmonicity
_UNDEFINED_DB = -200.0
_SILENCE_THRESHOLD = 0.1
# A frame of harmonicity reads 1/75 s to both sides and lies up to 5 ms from its frame of F0.
_HNR_REACH_S = 0.02
_PERIODS = (0, 0, 0.0001, 0.02, 1.3)  # whole sound, shortest and longest period, period factor
_AMPLITUDE_FACTOR = 1.6


def measure_tracks(sound: Sound, where: str = "clip") -> Tracks:
    """Return the tracks of a mono sound; the same sound gives the same values.

    Raises DataError for a sound shorter than 0.1 s (Praat's window of intensity needs 0.085 s).
    """
    import parselmouth

    if sound.duration_s < SHORTEST_S:
        problem = f"is too short to measure, at least {SHORTEST_S} s are needed"
        remedy = "Give the whole line, not a part of it."
        duration_s = round(sound.duration_s, 4)
        raise DataError(
            "Sound refused", [Problem(where, "duration_s", duration_s, problem, remedy)]
        )
    praat = parselmouth.Sound(sound.samples, sampling_frequency=sound.rate_hz)
    pitch, floor_hz, ceiling_hz = two_pass_pitch(praat)
    intensity = praat.to_intensity(minimum_pitch=_LOWEST_PITCH_HZ, time_step=STEP_S)
    f0_hz = f0_of(pitch)
    voiced_s = pitch.x1 + STEP_S * np.flatnonzero(~np.isnan(f0_hz))
    hnr_db, hnr_start_s = _harmonicity(sound, voiced_s)
    jitter_local, shimmer_local = _perturbation(praat, pitch)
    return Tracks(
        f0_hz=f0_hz,
        intensity_db=intensity.values[0],
        hnr_db=hnr_db,
        start_s=np.array([pitch.x1, intensity.x1, hnr_start_s]),
        duration_s=sound.duration_s,
        pitch_floor_hz=floor_hz,
        pitch_ceiling_hz=ceiling_hz,
        step_s=STEP_S,
        jitter_local=jitter_local,
        shimmer_local=shimmer_local,
        clipped_fraction=sound.clipped_fraction,
    )


def two_pass_pitch(praat: Any) -> tuple[Any, float, float]:
    """Return Praat's pitch object of a `parselmouth.Sound`, and floor and ceiling in Hz."""
    first = _pitch(praat, _FIRST_FLOOR_HZ, _FIRST_CEILING_HZ)
    f0_hz = f0_of(first)
    voiced_hz = f0_hz[~np.isnan(f0_hz)]
    if not voiced_hz.size:
        return first, _FIRST_FLOOR_HZ, _FIRST_CEILING_HZ
    low_hz, high_hz = np.percentile(voiced_hz, [25, 75])
    floor_hz = round(max(_FIRST_FLOOR_HZ, _FLOOR_FACTOR * low_hz), 1)
    ceiling_hz = round(min(_HIGHEST_CEILING_HZ, _CEILING_FACTOR * high_hz), 1)
    return _pitch(praat, floor_hz, ceiling_hz), floor_hz, ceiling_hz


def _pitch(praat: Any, floor_hz: float, ceiling_hz: float) -> Any:
    return praat.to_pitch_ac(time_step=STEP_S, pitch_floor=floor_hz, pitch_ceiling=ceiling_hz)


def f0_of(pitch: Any) -> Floats:
    """Return the F0 of each frame in Hz, NaN = unvoiced."""
    f0_hz = np.asarray(pitch.selected_array["frequency"], dtype=np.float64)
    return np.where(f0_hz > 0, f0_hz, np.nan)


def _harmonicity(sound: Sound, voiced_s: Floats) -> tuple[Floats, float]:
    """Return HNR in dB [k], NaN away from the times `voiced_s`, and the time of its first frame."""
    import parselmouth

    if not voiced_s.size:
        return np.full(1, np.nan), 0.0
    kept = _near(voiced_s, sound.samples.size, sound.rate_hz)
    samples = np.where(kept, sound.samples, 0.0)
    # Praat calls a frame silent relative to the sound's peak, which the cut may have lowered.
    ratio = _peak(sound.samples) / _peak(samples)
    harmonicity = parselmouth.Sound(samples, sampling_frequency=sound.rate_hz).to_harmonicity_cc(
        time_step=STEP_S, minimum_pitch=_LOWEST_PITCH_HZ,
        silence_threshold=_SILENCE_THRESHOLD * ratio, periods_per_window=1.0,
    )  # fmt: skip
    given_db = harmonicity.values[0]
    index = np.rint((voiced_s - harmonicity.x1) / STEP_S).astype(int)
    index = index[(index >= 0) & (index < given_db.size)]
    index = index[given_db[index] > _UNDEFINED_DB]
    hnr_db = np.full(given_db.size, np.nan)
    hnr_db[index] = given_db[index]
    return hnr_db, float(harmonicity.x1)


def _near(times_s: Floats, n_samples: int, rate_hz: int) -> Mask:
    """Which samples lie within `_HNR_REACH_S` of any of `times_s`."""
    edges = np.zeros(n_samples + 1)
    first = np.floor((times_s - _HNR_REACH_S) * rate_hz).astype(int)
    last = np.ceil((times_s + _HNR_REACH_S) * rate_hz).astype(int)
    np.add.at(edges, np.clip(first, 0, n_samples), 1)
    np.add.at(edges, np.clip(last, 0, n_samples), -1)
    return np.asarray(np.cumsum(edges)[:n_samples] > 0)


def _peak(samples: Floats) -> float:
    return float(np.abs(samples - samples.mean()).max())


def _perturbation(praat: Any, pitch: Any) -> tuple[float | None, float | None]:
    from parselmouth.praat import call

    pulses = call([praat, pitch], "To PointProcess (cc)")
    jitter = call(pulses, "Get jitter (local)", *_PERIODS)
    shimmer = call([praat, pulses], "Get shimmer (local)", *_PERIODS, _AMPLITUDE_FACTOR)
    return _defined(jitter), _defined(shimmer)


def _defined(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
