"""A line as espeak-ng says it (espeak.py), mono at 16 kHz, with the time of every word."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from subtext.prosody.audio import RATE_HZ
from subtext.prosody.frames import Floats

Spans = list[tuple[float, float]]

_ESPEAK = Path(__file__).resolve().parent / "espeak.py"
_ESPEAK_TIMEOUT_S = 60
_FADE_S = 0.012


@dataclass(frozen=True)
class Voice:
    """A speaker: espeak-ng's voice with its variant, middle of the pitch range, usual speed."""

    espeak: str
    hz: float
    words_per_minute: int


@dataclass(frozen=True)
class Spoken:
    """A line as espeak-ng says it, the silences between its clauses cut out.

    `samples` [n]; `words`: start and end of each word in s; `joins`: times in s where a silence
    was.
    """

    samples: Floats
    words: Spans
    joins: list[float]


def speak(text: str, voice: Voice) -> Spoken:
    """Return `text` as espeak-ng says it. Raises RuntimeError where it can't."""
    header, pcm = _run_espeak(text, voice)
    rate_hz = header["rate_hz"]
    return _without_gaps(
        _resampled(np.frombuffer(pcm, dtype=np.int16) / 32768, rate_hz),
        [(start / rate_hz, end / rate_hz) for start, end in header["words"]],
        [(start / rate_hz, end / rate_hz) for start, end in header["gaps"]],
    )


def espeak_version() -> str:
    """Return the version of the installed espeak-ng library. Raises RuntimeError without one."""
    return str(_run_espeak("a", Voice("gmw/en", 100, 160))[0]["version"])


def _run_espeak(text: str, voice: Voice) -> tuple[dict[str, Any], bytes]:
    request = {"text": text, "voice": voice.espeak, "words_per_minute": voice.words_per_minute}
    done = subprocess.run(
        [sys.executable, str(_ESPEAK)], input=json.dumps(request).encode(),
        capture_output=True, check=False, timeout=_ESPEAK_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode:
        reason = (done.stderr.decode().strip() or "no reason given").splitlines()[-1]
        raise RuntimeError(f"espeak-ng can't speak ({reason}); apt-get install espeak-ng")
    head, _, pcm = done.stdout.partition(b"\n")
    return json.loads(head), pcm


def _resampled(samples: Floats, rate_hz: int) -> Floats:
    import parselmouth

    sound = parselmouth.Sound(samples, sampling_frequency=rate_hz).resample(RATE_HZ, 50)
    return np.asarray(sound.values[0])


def _without_gaps(samples: Floats, words: Spans, gaps: Spans) -> Spoken:
    first_s, last_s = words[0][0], words[-1][1]
    inner = [gap for gap in gaps if first_s < gap[0] and gap[1] < last_s]
    edges = [first_s, *(time for gap in inner for time in gap), last_s]
    pieces = [
        faded(samples[round(start * RATE_HZ) : round(end * RATE_HZ)])
        for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]
    joins = np.cumsum([piece.size / RATE_HZ for piece in pieces])[:-1].tolist()

    def moved(time_s: float) -> float:
        cut_s = sum(min(max(time_s - start, 0.0), end - start) for start, end in inner)
        return time_s - first_s - cut_s

    return Spoken(
        np.concatenate(pieces), [(moved(start), moved(end)) for start, end in words], joins
    )


def faded(samples: Floats) -> Floats:
    """Return `samples` raised from 0 and lowered to it, so that a cut does not click."""
    n = min(round(_FADE_S * RATE_HZ), samples.size // 2)
    ramp = np.sin(np.linspace(0, np.pi / 2, n)) ** 2
    faded = samples.copy()
    faded[:n] *= ramp
    faded[faded.size - n :] *= ramp[::-1]
    return faded
