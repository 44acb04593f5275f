"""A corpus with sound: buzzes that glide like a voice, short enough for quick tests."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
from support.corpus import write_corpus

RATE_HZ = 16_000


def write_audio_corpus(root: Path, n_clips: int = 4) -> list[str]:
    """Write clips and a sound for each to `root`, without prosody.json; return the clip ids."""
    from subtext import strict_json

    write_corpus(root, n_clips, with_prosody=False)
    clip_ids = list(strict_json.read(root / "sarcasm_data.json"))
    (root / "audio").mkdir()
    for index, clip_id in enumerate(clip_ids):
        write_wav(root / "audio" / f"{clip_id}.wav", buzz(120 + 15 * index))
    return clip_ids


def buzz(f0_hz: float, seconds: float = 0.7) -> np.ndarray:
    """Ten harmonics of a tone that falls by a fifth, [seconds * RATE_HZ] in -1..1."""
    t = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    phase = 2 * np.pi * np.cumsum(f0_hz * 1.5 ** (-t / seconds)) / RATE_HZ
    return 0.3 * sum(np.sin(k * phase) / k for k in range(1, 11))


def write_wav(path: Path, samples: np.ndarray) -> Path:
    """Write mono 16-bit samples."""
    with wave.open(str(path), "wb") as stream:
        stream.setnchannels(1)
        stream.setsampwidth(2)
        stream.setframerate(RATE_HZ)
        stream.writeframes((samples * 32767).astype("<i2").tobytes())
    return path
