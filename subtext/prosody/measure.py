"""From a sound file to its prosody record: decode, track with Praat, take the features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from subtext.prosody.features import record_from_tracks
from subtext.prosody.schema import SCHEMA


def measure_clip(path: Path, utterance: str | None = None, where: str = "clip") -> dict[str, Any]:
    """Return the record of the sound file at `path`; the same file gives the same record.

    `utterance` is the transcript, without which the rates are null; `where` names the clip in
    errors. Raises DataError for a file that cannot be decoded or measured.
    """
    from subtext.prosody.audio import decode
    from subtext.prosody.tracks import measure_tracks

    return record_from_tracks(measure_tracks(decode(path), where), where, utterance)


def audio_extractor() -> str:
    """Return the `extractor` of records measured from audio, which names Praat's version."""
    import parselmouth

    return f"{SCHEMA} Praat {parselmouth.PRAAT_VERSION}"
