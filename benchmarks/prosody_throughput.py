"""How fast and how right pitch tracking is beside librosa's pyin, and how fast a whole record.

    python benchmarks/prosody_throughput.py [FOLDER]

Needs librosa: `pip install -e .[bench]`. Audio: the sound files of FOLDER, by default of
data/demo/audio, else the 12 synthesised sounds below. One thread; each of three rounds
runs all contestants on the same clips, in turning order; numba compiles before the first.

- *Speed*: medians over the rounds of CPU seconds, which a busy neighbour disturbs less than the
  clock; real-time factor = seconds of audio a CPU second. pyin searches 60-600 Hz, the first of our
  two passes too, both with a 10 ms step.
- *Accuracy*, on sweeps and vowels made of harmonics through formant resonators, in noise 40 dB
  below, with silence between: of the frames that truth and tracker call voiced, the median absolute
  error in cents and the share more than 50 cents off (gross); of all frames, the share in which
  the voicing decision is wrong.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np

from subtext.prosody import tracks
from subtext.prosody.audio import RATE_HZ, Sound, decode
from subtext.prosody.measure import measure_clip
from subtext.prosody.sound_files import is_sound_file

_ROUNDS = 3
_MAX_CLIPS = 12
_GROSS_CENTS = 50.0
_STEP_S = 0.01
_GAP_S = 0.3
_FORMANTS_HZ = {"a": (800, 1200, 2500), "i": (300, 2300, 3000), "u": (350, 800, 2300)}
_BANDWIDTH_HZ = 80.0
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_DEMO = Path(__file__).resolve().parents[1] / "data" / "demo" / "audio"

Truth = tuple[np.ndarray, np.ndarray]  # samples at RATE_HZ; F0 in Hz of each, NaN = unvoiced
Track = tuple[np.ndarray, np.ndarray]  # times in s; F0 in Hz, NaN = unvoiced


def main(folder: Path) -> None:
    """Print speed and accuracy of both trackers, and speed of the full record."""
    tests = _tests()
    with tempfile.TemporaryDirectory() as made:
        files = _files(folder) or _written(tests, Path(made))
        sounds = [decode(path) for path in files]
        contestants: dict[str, Callable[[], object]] = {
            "pitch, Praat in two passes": lambda: [_praat(sound) for sound in sounds],
            "pitch, librosa.pyin": lambda: [_pyin(sound) for sound in sounds],
            "full record from the file": lambda: [measure_clip(path, "a b c") for path in files],
        }
        _pyin(sounds[0])
        measure_clip(files[0], "a b c")
        seconds = _cpu_seconds(contestants)
    audio_s = sum(sound.samples.size for sound in sounds) / RATE_HZ
    source = folder if files[0].parent == folder else "synthesised vowels"
    print(f"{len(files)} clips, {audio_s:.1f} s of audio ({source}), one thread, {_ROUNDS} rounds")
    for name, values in seconds.items():
        middle = statistics.median(values)
        speed = f"{len(files) / middle:8.2f} clips/s  {audio_s / middle:7.1f} x real time"
        print(f"{name:28} {speed}  ({min(values):.2f} to {max(values):.2f} CPU s)")
    ours, pyin, _ = (statistics.median(values) for values in seconds.values())
    print(f"pitch: {pyin / ours:.1f} times the speed of pyin\n")
    print(f"{len(tests)} sounds of known F0         median error  gross errors  voicing errors")
    for name, tracker in (("Praat in two passes", _praat), ("librosa.pyin", _pyin)):
        cents, gross, voicing = _accuracy(tracker, tests)
        print(f"{name:28} {cents:7.2f} cents  {gross:11.2%}  {voicing:13.2%}")


def _cpu_seconds(contestants: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    order = list(contestants)
    for _ in range(_ROUNDS):
        for name in order:
            started = time.process_time()
            contestants[name]()
            seconds[name].append(time.process_time() - started)
        order = order[1:] + order[:1]
    return seconds


def _praat(sound: Sound) -> Track:
    import parselmouth

    praat = parselmouth.Sound(sound.samples, sampling_frequency=sound.rate_hz)
    pitch, _, _ = tracks.two_pass_pitch(praat)
    return pitch.xs(), tracks.f0_of(pitch)


def _pyin(sound: Sound) -> Track:
    import librosa

    f0_hz, _, _ = librosa.pyin(
        sound.samples, fmin=60, fmax=600, sr=sound.rate_hz, frame_length=1024,
        hop_length=round(_STEP_S * sound.rate_hz),
    )  # fmt: skip
    return _STEP_S * np.arange(f0_hz.size), f0_hz


def _accuracy(tracker: Callable[[Sound], Track], tests: list[Truth]) -> tuple[float, float, float]:
    errors, wrong, n_frames = [], 0, 0
    for samples, truth_hz in tests:
        times_s, f0_hz = tracker(Sound(samples, RATE_HZ, 0.0))
        expected = truth_hz[np.rint(times_s * RATE_HZ).astype(int).clip(0, truth_hz.size - 1)]
        errors.append(np.abs(1200 * np.log2(f0_hz / expected)))
        wrong += np.count_nonzero(np.isnan(f0_hz) != np.isnan(expected))
        n_frames += f0_hz.size
    cents = np.concatenate(errors)
    cents = cents[~np.isnan(cents)]
    return float(np.median(cents)), float(np.mean(cents > _GROSS_CENTS)), wrong / n_frames


def _tests() -> list[Truth]:
    """Per vowel: a falling and a rising sweep over two octaves, a low and a high voice."""
    random = np.random.default_rng(0)
    time_s = np.arange(int(0.8 * RATE_HZ)) / RATE_HZ
    vibrato = 2.0 ** (0.5 * np.sin(2 * np.pi * 3.0 * time_s) / 12.0)
    sweep = 90.0 * 2.0 ** (2.0 * time_s / time_s[-1])
    voices = {"sweeps": (sweep, sweep[::-1]), "low": (90 * vibrato, 120 * vibrato)}
    voices["high"] = (190 * vibrato, 260 * vibrato)
    return [
        _sentence(pair, formants, random)
        for formants in _FORMANTS_HZ.values()
        for pair in (*voices.values(), (voices["low"][0], sweep))
    ]


def _sentence(
    melodies: tuple[np.ndarray, ...], formants: tuple[int, ...], random: np.random.Generator
) -> Truth:
    gap = np.zeros(int(_GAP_S * RATE_HZ))
    samples, truth = [gap], [np.full_like(gap, np.nan)]
    for f0_hz in melodies:
        samples += [_vowel(f0_hz, formants), gap]
        truth += [f0_hz, np.full_like(gap, np.nan)]
    sound = 0.5 * np.concatenate(samples)
    noise = 0.01 * np.std(sound) * random.standard_normal(sound.size)
    return sound + noise, np.concatenate(truth)


def _vowel(f0_hz: np.ndarray, formants: tuple[int, ...]) -> np.ndarray:
    """Harmonics below 7 kHz, 1/n as a voice's source, weighted by the resonators' gain."""
    phase = 2 * np.pi * np.cumsum(f0_hz) / RATE_HZ
    sound = np.zeros_like(f0_hz)
    for number in range(1, int(7000 / f0_hz.min()) + 1):
        hertz = number * f0_hz
        gain = np.where(hertz < 7000, 1.0 / number, 0.0)
        for formant in formants:
            gain = gain * formant**2 / np.hypot(formant**2 - hertz**2, hertz * _BANDWIDTH_HZ)
        sound += gain * np.sin(number * phase)
    return sound / np.abs(sound).max()


def _files(folder: Path) -> list[Path]:
    """At most 12 files, evenly over the folder."""
    found = sorted(filter(is_sound_file, folder.glob("*")))
    return found[:: max(1, len(found) // _MAX_CLIPS)][:_MAX_CLIPS]


def _written(tests: list[Truth], folder: Path) -> list[Path]:
    paths = [folder / f"{number:02}.wav" for number in range(len(tests))]
    for path, (samples, _) in zip(paths, tests, strict=True):
        with wave.open(str(path), "wb") as stream:
            stream.setnchannels(1)
            stream.setsampwidth(2)
            stream.setframerate(RATE_HZ)
            stream.writeframes((32767 * samples).clip(-32768, 32767).astype("<i2").tobytes())
    return paths


if __name__ == "__main__":
    if importlib.util.find_spec("librosa") is None:
        sys.exit("librosa, which this compares with, is not installed: pip install -e .[bench]")
    if os.environ.get("NUMBA_NUM_THREADS") == "1":
        main(Path(sys.argv[1]) if sys.argv[1:] else _DEMO)
    else:
        one = dict.fromkeys(_ONE_THREAD, "1")
        again = [sys.executable, *sys.argv]
        sys.exit(subprocess.run(again, env={**os.environ, **one}, check=False).returncode)
