"""The text of one clip as the model reads it: transcript, prosody in words, pitch contour.

The prosody text has a fixed line order and an explicit "not measurable" for every null. It is made
for at most 120 tokens, features and contour together. It prints relative values only, semitones
and dB of spread, and pauses and tempo in words: on MUStARD a duration, a level in dB or a pitch in
Hz tells show and speaker, and so the label, and a pause in seconds or a rate beside the transcript
would give the duration away.

Low, medium and high (slow and fast, short and long) come from the thresholds of a
`subtext.prosody.reference`: a record that a run has described says how it reads against that run's
training clips; any other is described with the published thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from subtext.prosody.reference import LEVELS, PUBLISHED

NOT_AVAILABLE = "prosody: not available"
_NOT_MEASURABLE = "not measurable"
_TEMPI = dict(zip(LEVELS, ("slow", "medium", "fast"), strict=True))
_LENGTHS = dict(zip(LEVELS, ("short", "medium", "long"), strict=True))
_COUNTS = ("none", "one", "two")  # more: several
_PLACES = ("early", "mid", "late")
_FLAT_ST = 1.0

Record = Mapping[str, Any]


def render_transcript(clip_id: str, scenarios: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the context, oldest line first, and the line to judge, each with its speaker."""
    clip = scenarios[clip_id]
    pairs = zip(clip["context_speakers"], clip["context"], strict=True)
    lines = [f"{_one_line(speaker)}: {_one_line(text)}" for speaker, text in pairs]
    target = f"{_one_line(clip['speaker'])}: {_one_line(clip['utterance'])}"
    return "\n".join(["Context:", *(lines or ["(none)"]), "Line to judge:", target])


def render_prosody_features(clip_id: str, prosody: Record | None) -> str:
    """Return one line a feature, or "prosody: not available" for a clip without a record."""
    if not prosody:
        return NOT_AVAILABLE
    record = prosody if "words" in prosody else PUBLISHED.described(prosody, speaker="")
    lines = {
        "pitch level": _level(record),
        "pitch variation": _measured(record, "f0_sd_st", "{:z.1f} st"),
        "pitch range": _measured(record, "f0_range_st"),
        "pitch slope": _measured(record, "f0_slope_st_per_s"),
        "final slope": _measured(record, "f0_final_slope_st_per_s", "{:z.0f} st/s"),
        "loudness variation": _measured(record, "intensity_sd_db"),
        "tempo": _TEMPI.get(_word(record, "articulation_rate_syllables_per_s"), _NOT_MEASURABLE),
        "pauses": _pauses(record),
        "voicing": _measured(record, "voiced_fraction"),
        "clarity": _measured(record, "hnr_mean_db"),
    }
    if record.get("quality"):
        lines["doubtful"] = ", ".join(flag.replace("_", " ") for flag in record["quality"])
    return "\n".join(f"{label}: {text}" for label, text in lines.items())


def render_pitch_contour(clip_id: str, prosody: Record | None) -> str:
    """Return the slices of the contour in semitones from the clip's own median, and its shape."""
    if not prosody:
        return NOT_AVAILABLE
    contour = prosody["contour_st"]
    if all(value is None for value in contour):
        return f"contour: {_NOT_MEASURABLE}"
    slices = " ".join("." if value is None else f"{round(2 * value) / 2:zg}" for value in contour)
    return f"contour: {slices}\nshape: {_shape(contour)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _word(record: Record, name: str) -> str:
    word: str = record["words"].get(name, _NOT_MEASURABLE)
    return word


def _measured(record: Record, name: str, shown: str = "") -> str:
    word = _word(record, name)
    return f"{word}, {shown.format(record[name])}" if shown and word in LEVELS else word


def _level(record: Record) -> str:
    if record["f0_level_reference"] == "none":
        return "no reference"
    return _measured(record, "f0_level_st", "{:z.1f} st")


def _pauses(record: Record) -> str:
    count = record["pause_count"]
    if not count:
        return _COUNTS[0]
    text = _COUNTS[count] if count < len(_COUNTS) else "several"
    text += f", longest {_LENGTHS[_word(record, 'pause_longest_s')]}"
    place = record.get("pause_longest_at")
    return text if place is None else f"{text}, {_PLACES[min(2, int(3 * place))]}"


def _shape(contour: list[float | None]) -> str:
    """Moves between the means of the first, middle and last third, 1 st or more apart."""
    size = len(contour)
    cuts = (0, size // 3, size - size // 3, size)
    thirds = [
        [value for value in contour[start:stop] if value is not None]
        for start, stop in pairwise(cuts)
    ]
    means = [sum(third) / len(third) for third in thirds if third]
    if len(means) < 2:
        return _NOT_MEASURABLE
    moves = [_move(after - before) for before, after in pairwise(means)]
    return " then ".join(dict.fromkeys(moves))


def _move(difference_st: float) -> str:
    if abs(difference_st) < _FLAT_ST:
        return "level"
    return "rising" if difference_st > 0 else "falling"
