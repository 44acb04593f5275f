"""Give a line spoken by espeak-ng a delivery: pitch, tempo, pauses and stress, shaped with Praat.

espeak-ng says the line in its own flat manner (speech.py). Praat's manipulation then changes
pitch and durations by overlap-add, which leaves the vowels as they are; loudness is a slow gain;
pauses are silences put between two words, with faded edges. Pitch variation, final movement and
loudness variation are solved for, so that what was asked for is what a measurement finds, as far
as the words allow. Units stand in the names; st = semitones. Everything is mono at 16 kHz.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.make_demo.speech import Spans, Spoken, Voice, faded
from subtext.prosody.audio import RATE_HZ
from subtext.prosody.frames import Floats, Mask

_STEP_S = 0.01
_FINAL_S = 0.5  # subtext/prosody/features.py takes the final slope over as much
_SHORTEST_GAP_S = 0.05
_EDGE_S = 0.03  # over which stress comes and goes
_RMS = 0.06
_LIMIT = 0.97
_GAIN_LIMIT_DB = 9.0
_LOWEST_HZ = 72.0  # below it, trackers take an octave for the pitch


@dataclass(frozen=True)
class Delivery:
    """How to say a line. The first seven follow the drawn cues, the rest no label.

    `pauses`: (place in the line 0..1, length in s), the longest first; `stress`: strength of the
    stressed word, 0 = none; `stress_at`: its place 0..1; `waves`: frequency in Hz and phase of
    slow movements of pitch; `level_st`, `level_db`: off the voice's own level; `noise_db`: hiss
    relative to the speech; `silence_s`: before and after.
    """

    pitch_sd_st: float
    final_st_per_s: float
    pauses: tuple[tuple[float, float], ...]
    stretch: float
    loudness_sd_db: float
    stress: float
    stress_at: float
    waves: tuple[tuple[float, float], ...]
    level_st: float
    level_db: float
    noise_db: float
    silence_s: tuple[float, float]
    noise_seed: int


def deliver(spoken: Spoken, voice: Voice, delivery: Delivery) -> Floats:
    """Return the samples [n] of `spoken` said as `delivery` asks, within ±1, not yet rounded."""
    word = spoken.words[_nearest_word(spoken.words, delivery.stress_at)]
    pauses = _placed_pauses(spoken, delivery.pauses)
    times_s = np.arange(0, spoken.samples.size / RATE_HZ, _STEP_S)
    factor = _durations(times_s, word, list(pauses), delivery)
    said_s = np.concatenate([[0.0], np.cumsum((factor[1:] + factor[:-1]) / 2 * _STEP_S)])
    samples = _manipulated(spoken, voice, delivery, word, times_s, factor, said_s)
    stressed_s = np.interp(word, times_s, said_s)
    samples = samples * _gain(samples, delivery, (float(stressed_s[0]), float(stressed_s[1])))
    cuts = {float(np.interp(at_s, times_s, said_s)): length for at_s, length in pauses.items()}
    return _finished(_with_pauses(samples, cuts), delivery)


def save(samples: Floats, path: Path) -> None:
    """Write `samples` as FLAC, 16 bit."""
    import parselmouth

    sound = parselmouth.Sound(samples, sampling_frequency=RATE_HZ)
    sound.save(str(path), parselmouth.SoundFileFormat.FLAC)


def _nearest_word(words: Spans, place: float) -> int:
    return min(int(place * len(words)), len(words) - 1)


def _placed_pauses(spoken: Spoken, pauses: tuple[tuple[float, float], ...]) -> dict[float, float]:
    """Time in s -> length in s. Between clauses where there are any, else between two words, and
    never so late that the last word alone would carry the final movement."""
    length_s = spoken.samples.size / RATE_HZ
    placed = dict.fromkeys(spoken.joins, _SHORTEST_GAP_S)
    between = [word[0] for word in spoken.words[1:]]
    early = [time for time in between if time < max(length_s - 0.45, between[0] + 0.01)]
    free = [time for time in spoken.joins if time in early or time < length_s - 0.3] or early
    for place, pause_s in pauses:
        if pause_s >= _SHORTEST_GAP_S and free:
            chosen = min(free, key=lambda time: abs(time / length_s - place))
            placed[chosen] = max(pause_s, placed.get(chosen, 0.0))
            free = [time for time in early if abs(time - chosen) > 0.25]
    return placed


def _bump(times_s: Floats, start_s: float, end_s: float) -> Floats:
    """1 from start to end, with soft edges."""
    rise = np.clip((times_s - start_s + _EDGE_S) / (2 * _EDGE_S), 0, 1)
    fall = np.clip((end_s + _EDGE_S - times_s) / (2 * _EDGE_S), 0, 1)
    return np.minimum(rise, fall)


def _durations(
    times_s: Floats, word: tuple[float, float], pauses_s: list[float], delivery: Delivery
) -> Floats:
    """Factor of duration at each time: longer on the stressed word and before a pause, and
    `stretch` on average."""
    factor = 1 + 0.22 * delivery.stress * _bump(times_s, *word)
    for pause_s in pauses_s:
        factor += 0.25 * _bump(times_s, pause_s - 0.18, pause_s - _EDGE_S)
    return np.asarray(factor * delivery.stretch / factor.mean())


def _manipulated(
    spoken: Spoken, voice: Voice, delivery: Delivery, word: tuple[float, float],
    times_s: Floats, factor: Floats, said_s: Floats,
) -> Floats:  # fmt: skip
    """The line with the pitch and the durations asked for, by overlap-add."""
    import parselmouth
    from parselmouth.praat import call, run

    sound = parselmouth.Sound(spoken.samples, sampling_frequency=RATE_HZ)
    manipulation = call(sound, "To Manipulation", _STEP_S, 60.0, 500.0)
    given = call(manipulation, "Extract pitch tier")
    n = int(call(given, "Get number of points"))
    voiced_s = np.array([call(given, "Get time from index", i + 1) for i in range(n)])
    hz = np.array([call(given, "Get value at index", i + 1) for i in range(n)])
    own_st = 12 * np.log2(hz / np.median(hz))
    own_st = np.clip(own_st, -7, 7) + 1.5 * delivery.stress * _bump(voiced_s, *word)
    at_s = np.interp(voiced_s, times_s, said_s)
    own_st += sum(np.sin(2 * np.pi * (hertz * at_s + phase)) for hertz, phase in delivery.waves)
    middle_hz = voice.hz * 2 ** (delivery.level_st / 12)
    lowest_st = 12 * float(np.log2(_LOWEST_HZ / middle_hz))
    contour_st = np.maximum(_contour(own_st, at_s, delivery), lowest_st)

    end_s = float(sound.xmax)
    pitch = call("Create PitchTier", "pitch", 0.0, end_s)
    for time, st in zip(voiced_s.tolist(), contour_st.tolist(), strict=True):
        call(pitch, "Add point", time, middle_hz * 2 ** (st / 12))
    durations = call("Create DurationTier", "durations", 0.0, end_s)
    for time, value in zip(times_s.tolist(), factor.tolist(), strict=True):
        call(durations, "Add point", time, value)
    call([manipulation, pitch], "Replace pitch tier")
    call([manipulation, durations], "Replace duration tier")
    # Praat draws where the voiceless parts are joined; seeded, it draws the same on every run.
    run(f"random_initializeWithSeedUnsafelyButPredictably ({delivery.noise_seed})")
    resynthesised: Any = call(manipulation, "Get resynthesis (overlap-add)")
    run("random_initializeSafelyAndUnpredictably ()")
    return np.asarray(resynthesised.values[0], dtype=np.float64)


def _contour(own_st: Floats, at_s: Floats, delivery: Delivery) -> Floats:
    """Pitch in st round its median: the line's own movement, scaled until the SD is as asked,
    then a straight last half second."""
    final = at_s > at_s[-1] - _FINAL_S
    start = int(np.argmax(final))
    ramp_st = delivery.final_st_per_s * (at_s - at_s[start])

    def scaled(scale: float) -> Floats:
        moved = scale * own_st
        return np.where(final, 0.6 * moved[start] + 0.15 * (moved - moved[start]) + ramp_st, moved)

    low, high = 0.15, 6.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if scaled(middle).std() < delivery.pitch_sd_st else (low, middle)
    contour_st = scaled(low)
    return np.asarray(np.clip(contour_st - np.median(contour_st), -11, 11))


def _gain(samples: Floats, delivery: Delivery, word: tuple[float, float]) -> Floats:
    """Factor [n] that brings the SD of loudness at voiced frames to what is asked, with the
    stressed word on top."""
    import parselmouth

    sound = parselmouth.Sound(samples, sampling_frequency=RATE_HZ)
    intensity = sound.to_intensity(minimum_pitch=75.0, time_step=_STEP_S)
    level_db, frames_s = intensity.values[0], intensity.xs()
    pitch = sound.to_pitch_ac(time_step=_STEP_S, pitch_floor=60.0, pitch_ceiling=500.0)
    hz = np.interp(frames_s, pitch.xs(), pitch.selected_array["frequency"])
    voiced: Mask = hz > 60
    middle_db = level_db[voiced].mean()
    away_db = np.clip(level_db - middle_db, -12, 8)
    away_db = np.convolve(np.pad(away_db, 2, mode="edge"), np.ones(5) / 5, mode="valid")
    stress_db = 2.5 * delivery.stress * _bump(frames_s, *word)

    def gain_db(scale: float) -> Floats:
        return np.clip(scale * away_db + stress_db, -_GAIN_LIMIT_DB, _GAIN_LIMIT_DB)

    low, high = -0.85, 1.2
    for _ in range(30):
        middle = (low + high) / 2
        wide = (level_db + gain_db(middle))[voiced].std() >= delivery.loudness_sd_db
        low, high = (low, middle) if wide else (middle, high)
    at_s = np.arange(samples.size) / RATE_HZ
    return np.asarray(10 ** (np.interp(at_s, frames_s, gain_db(low)) / 20))


def _with_pauses(samples: Floats, cuts: dict[float, float]) -> Floats:
    edges = [0, *(round(at_s * RATE_HZ) for at_s in sorted(cuts)), samples.size]
    lengths_s = [*(cuts[at_s] for at_s in sorted(cuts)), 0.0]
    pieces: list[Floats] = []
    for start, end, pause_s in zip(edges[:-1], edges[1:], lengths_s, strict=True):
        pieces += [faded(samples[start:end]), np.zeros(round(pause_s * RATE_HZ))]
    return np.concatenate(pieces)


def _finished(samples: Floats, delivery: Delivery) -> Floats:
    """Level, silence at both ends, a little hiss; quieter where a peak would clip."""
    rms = float(np.sqrt(np.mean(samples[np.abs(samples) > 0.01 * np.abs(samples).max()] ** 2)))
    samples = samples * (_RMS * 10 ** (delivery.level_db / 20) / rms)
    before, after = (np.zeros(round(length_s * RATE_HZ)) for length_s in delivery.silence_s)
    samples = np.concatenate([before, samples, after])
    rng = np.random.default_rng(delivery.noise_seed)
    hiss = _RMS * 10 ** (delivery.noise_db / 20) * rng.standard_normal(samples.size)
    samples = samples + hiss
    return np.asarray(samples * min(1.0, _LIMIT / float(np.abs(samples).max())))
