"""The text of one clip as the model reads it: transcript, prosody in words, pitch contour.

The prosody text has a fixed line order and an explicit "not measurable" for every null. It is made
for at most 120 tokens: the 210 measured clips need up to 116 with SmolLM2's tokenizer, features and
contour together; a record with extreme values or 12 slices can need more. It prints relative
values only, semitones and dB of spread, and pauses in words: on
MUStARD a duration, a level in dB or a pitch in Hz tells show and speaker, and so the label.

The words low, medium and high, and falling, level and rising, stand for terciles over the 210
measured MUStARD clips, taken blind to the label, held-out clips included (lower, upper tercile):

    pitch variation, SD st          2.7,  3.7      loudness variation, SD dB     4.3,  5.2
    pitch range, P95-P5 st          9.1, 11.9      voicing, share of the span   0.43, 0.57
    pitch movement, st/s           -0.7,  0.2      voice clarity, HNR dB         7.8,  9.9
    final movement, st/s           -4.8,  4.1      longest pause, s (71 clips)  0.24, 0.44
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

NOT_AVAILABLE = "prosody: not available"
_NOT_MEASURABLE = "not measurable"
_LEVELS = ("low", "medium", "high")
_MOVES = ("falling", "level", "rising")
_LENGTHS = ("short", "medium", "long")
_COUNTS = ("none", "one", "two")  # more: several
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
    lines = {
        "pitch variation": _measured(prosody, "f0_sd_st", _LEVELS, (2.7, 3.7), "{:z.1f} st"),
        "pitch range": _measured(prosody, "f0_range_st", _LEVELS, (9.1, 11.9)),
        "pitch movement": _measured(
            prosody, "f0_slope_st_per_s", _MOVES, (-0.7, 0.2), "{:z.1f} st/s"
        ),
        "final movement": _measured(
            prosody, "f0_final_slope_st_per_s", _MOVES, (-4.8, 4.1), "{:z.0f} st/s"
        ),
        "loudness variation": _measured(
            prosody, "intensity_sd_db", _LEVELS, (4.3, 5.2), "{:.1f} dB"
        ),
        "pauses": _pauses(prosody),
        "voicing": _measured(prosody, "voiced_fraction", _LEVELS, (0.43, 0.57)),
        "voice clarity": _measured(prosody, "hnr_mean_db", _LEVELS, (7.8, 9.9)),
    }
    return "\n".join(f"{label}: {text}" for label, text in lines.items())


def render_pitch_contour(clip_id: str, prosody: Record | None) -> str:
    """Return the slices of the contour in semitones from the clip's own median, and its shape."""
    if not prosody:
        return NOT_AVAILABLE
    contour = prosody["contour_st"]
    if all(value is None for value in contour):
        return f"contour: {_NOT_MEASURABLE}"
    slices = " ".join("." if value is None else f"{round(2 * value) / 2:zg}" for value in contour)
    return f"st from median: {slices}\nshape: {_shape(contour)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _measured(
    prosody: Record,
    name: str,
    words: tuple[str, ...],
    terciles: tuple[float, float],
    shown: str = "",
) -> str:
    value = prosody.get(name)
    if value is None:
        return _NOT_MEASURABLE
    word = _word(value, words, terciles)
    return f"{word}, {shown.format(value)}" if shown else word


def _word(value: float, words: tuple[str, ...], terciles: tuple[float, float]) -> str:
    return words[sum(value >= limit for limit in terciles)]


def _pauses(prosody: Record) -> str:
    count = prosody["pause_count"]
    if not count:
        return _COUNTS[0]
    length = _word(prosody["pause_longest_s"], _LENGTHS, (0.24, 0.44))
    return f"{_COUNTS[count] if count < len(_COUNTS) else 'several'}, longest {length}"


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
