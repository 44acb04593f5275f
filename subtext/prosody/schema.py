"""The prosody record: field names, units and possible ranges, and the check of a record.

`prosody.json` is `{"schema": SCHEMA, "extractor": …, "clips": {clip_id: record}}`. Units stand in
the names: `_s` seconds, `_hz` hertz, `_st` semitones, `_db` decibels, `_fraction` 0..1. A value
that could not be measured is null; 0 always means a measured zero. `subtext/prosody/features.py`
defines every field.

Flags in `quality` (thresholds are ours, set so that each names a minority of 210 measured clips):

- `clipped`: at least 0.1 % of the samples stand at the limit of the recording.
- `no_voice`: fewer than 5 voiced frames, so no pitch. `little_voice`: less than 0.5 s of voice.
- `octave_jumps`: more than 2 % of the steps between voiced frames exceed 6 st, before the repair.
- `pitch_at_limit`: more than 5 % of the voiced frames lie within 5 % of pitch floor or ceiling.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from subtext.errors import Problem

SCHEMA = "subtext.prosody/2"
TRACKS_EXTRACTOR = f"{SCHEMA} tracks"  # for records from sound see `measure.audio_extractor`
QUALITY_FLAGS = ("clipped", "little_voice", "no_voice", "octave_jumps", "pitch_at_limit")
MIN_SLICES, MAX_SLICES = 8, 12
_CONTOUR_LIMIT_ST = 60.0


@dataclass(frozen=True)
class FieldRule:
    """What one numeric field of a record may hold."""

    low: float
    high: float
    nullable: bool = True
    required: bool = True
    integer: bool = False


FIELDS: dict[str, FieldRule] = {
    "duration_s": FieldRule(0.01, 3600, nullable=False),
    "f0_median_hz": FieldRule(20, 2000),
    "f0_sd_st": FieldRule(0, 60),
    "f0_range_st": FieldRule(0, 80),
    "voiced_fraction": FieldRule(0, 1, nullable=False),
    "intensity_sd_db": FieldRule(0, 400),
    "hnr_mean_db": FieldRule(-200, 200),
    "pause_count": FieldRule(0, 10_000, nullable=False, integer=True),
    "pause_longest_s": FieldRule(0, 3600, nullable=False),
    "pause_total_s": FieldRule(0, 3600, nullable=False, required=False),
    "pause_longest_at": FieldRule(0, 1, required=False),
    "voiced_s": FieldRule(0, 3600, nullable=False, required=False),
    "f0_slope_st_per_s": FieldRule(-2000, 2000, required=False),
    "f0_final_slope_st_per_s": FieldRule(-2000, 2000, required=False),
    "f0_final_move_st": FieldRule(-120, 120, required=False),
    "intensity_range_db": FieldRule(0, 800, required=False),
    "n_syllables": FieldRule(0, 100_000, required=False, integer=True),
    "speech_rate_syllables_per_s": FieldRule(0, 100, required=False),
    "articulation_rate_syllables_per_s": FieldRule(0, 100, required=False),
    "jitter_local": FieldRule(0, 1, required=False),
    "shimmer_local": FieldRule(0, 2, required=False),
    "f0_edge_fraction": FieldRule(0, 1, required=False),
    "octave_jump_fraction": FieldRule(0, 1, required=False),
    "octave_fix_fraction": FieldRule(0, 1, required=False),
    "short_run_fraction": FieldRule(0, 1, required=False),
    "clipped_fraction": FieldRule(0, 1, required=False),
}
_KNOWN = (*FIELDS, "contour_st", "quality")


def record_problems(where: str, record: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield every problem of one record; `where` names file and clip."""
    for name in record:
        if name not in _KNOWN:
            close = difflib.get_close_matches(name, _KNOWN, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Known fields: {', '.join(_KNOWN)}."
            yield Problem(where, name, record[name], "is no field of a prosody record", hint)
    for name, rule in FIELDS.items():
        if name in record:
            yield from _number_problems(where, name, record[name], rule)
        elif rule.required:
            yield _missing(where, name, rule.nullable)
    if "contour_st" in record:
        yield from _contour_problems(where, record["contour_st"])
    else:
        yield _missing(where, "contour_st", nullable=False)
    if "quality" in record:
        yield from _quality_problems(where, record["quality"])
    yield from _agreement_problems(where, record)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether `value` is a JSON number (true and false are not)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _missing(where: str, name: str, nullable: bool) -> Problem:
    remedy = "Measure it again: `python -m flows.data_flow` or `subtext prosody from-tracks`"
    remedy += ", or write null where it could not be measured." if nullable else "."
    return Problem(where, name, None, "is missing", remedy)


def _number_problems(where: str, name: str, value: Any, rule: FieldRule) -> Iterator[Problem]:
    kind = "a whole number" if rule.integer else "a number"
    if value is None:
        if not rule.nullable:
            yield Problem(where, name, value, f"is null but must be {kind}", "Measure it again.")
        return
    if not is_number(value) or (rule.integer and not isinstance(value, int)):
        remedy = f"Write {kind}{' or null' if rule.nullable else ''}."
        yield Problem(where, name, value, f"is not {kind}", remedy)
        return
    # NaN and Infinity are reported where the file is read.
    if _finite(value) and not rule.low <= value <= rule.high:
        remedy = f"Possible values: {rule.low:g} to {rule.high:g}; check the unit in the name."
        yield Problem(where, name, value, "is out of range", remedy)


def _contour_problems(where: str, contour: Any) -> Iterator[Problem]:
    if not isinstance(contour, list) or not MIN_SLICES <= len(contour) <= MAX_SLICES:
        yield Problem(
            where, "contour_st", contour, "is not a list of slices",
            f"Write {MIN_SLICES} to {MAX_SLICES} entries, each a number or null.",
        )  # fmt: skip
        return
    for index, value in enumerate(contour):
        rule = FieldRule(-_CONTOUR_LIMIT_ST, _CONTOUR_LIMIT_ST)
        yield from _number_problems(where, f"contour_st[{index}]", value, rule)


def _quality_problems(where: str, quality: Any) -> Iterator[Problem]:
    if not isinstance(quality, list) or any(flag not in QUALITY_FLAGS for flag in quality):
        remedy = f"Possible flags: {', '.join(QUALITY_FLAGS)}."
        yield Problem(where, "quality", quality, "is not a list of known flags", remedy)
    elif quality != sorted(set(quality)):
        remedy = "Write each flag once, in alphabetical order."
        yield Problem(where, "quality", quality, "is not sorted", remedy)


def _agreement_problems(where: str, record: Mapping[str, Any]) -> Iterator[Problem]:
    duration = record.get("duration_s")
    if not is_number(duration):
        return
    for name in ("pause_longest_s", "pause_total_s", "voiced_s"):
        value = record.get(name)
        if is_number(value) and _finite(value) and value > duration:
            yield Problem(
                where, name, value, f"is longer than the clip's duration_s {duration}",
                "Measure the clip again.",
            )  # fmt: skip


def _finite(value: float) -> bool:
    return isinstance(value, int) or math.isfinite(value)
