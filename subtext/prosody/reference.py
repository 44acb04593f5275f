"""What is usual: the thresholds behind "low", "medium" and "high", and every speaker's pitch.

Both are fitted on training clips only, blind to the label, saved with the run and with its adapter,
and used for every clip that is judged, so that nothing of a held-out clip shapes its own words.

- *Thresholds.* The terciles of each field of `TERCILE_FIELDS` over the training clips that have it
  (`pause_longest_s`: over those that pause). With fewer than `MIN_VALUES` values the published
  terciles stand in, and `source` says so field by field.
- *Speaker's pitch.* The median of `f0_median_hz` over the speaker's training clips, where there
  are `MIN_CLIPS` or more. `f0_level_st` of a clip is 12·log2(f0_median_hz / that). Another
  speaker's clip has no level: relative to everybody's median, it would only tell sex and cast.

`PUBLISHED` holds the terciles of 210 MUStARD clips measured from audio and no speaker: what a
record is described with outside a run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from subtext.prosody.schema import FIELDS

MIN_VALUES = 12
MIN_CLIPS = 5
LEVELS = ("low", "medium", "high")
_DECIMALS = 4

Record = Mapping[str, Any]
Source = Literal["training clips", "published"]

_PUBLISHED_TERCILES = {
    "articulation_rate_syllables_per_s": (2.8, 3.8),
    "f0_final_slope_st_per_s": (-4.8, 4.1),
    "f0_level_st": (-1.9, 1.8),
    "f0_range_st": (9.1, 11.9),
    "f0_sd_st": (2.7, 3.7),
    "f0_slope_st_per_s": (-0.7, 0.2),
    "hnr_mean_db": (7.8, 9.9),
    "intensity_sd_db": (4.3, 5.2),
    "pause_longest_s": (0.24, 0.44),
    "voiced_fraction": (0.43, 0.57),
}
TERCILE_FIELDS = tuple(_PUBLISHED_TERCILES)


def _whole(by_field: dict[str, Any]) -> dict[str, Any]:
    if missing := [name for name in TERCILE_FIELDS if name not in by_field]:
        raise ValueError(f"lacks {', '.join(missing)}")
    if unknown := sorted(by_field.keys() - set(TERCILE_FIELDS)):
        raise ValueError(f"has no such fields: {', '.join(unknown)}")
    return by_field


def _in_order(limits: tuple[float, float]) -> tuple[float, float]:
    if limits[0] > limits[1]:
        raise ValueError("has its lower limit above its upper one")
    return limits


_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Limits = Annotated[tuple[_Number, _Number], AfterValidator(_in_order)]
_PITCH = FIELDS["f0_median_hz"]
_Hertz = Annotated[_Number, Field(ge=_PITCH.low, le=_PITCH.high)]


class ReferenceRecord(BaseModel):
    """What `Reference.record` returns; a text is no number here."""

    model_config = ConfigDict(extra="forbid")

    terciles: Annotated[dict[str, _Limits], AfterValidator(_whole)]
    speakers_hz: dict[str, _Hertz]
    source: Annotated[dict[str, Source], AfterValidator(_whole)]


@dataclass(frozen=True)
class Reference:
    """Thresholds and speakers' pitch, and how the fields of a record read against them.

    `terciles`: field -> (lower, upper), in the field's unit; `speakers_hz`: speaker -> median F0
    in Hz; `source`: field -> where its terciles come from.
    """

    terciles: Mapping[str, tuple[float, float]]
    speakers_hz: Mapping[str, float] = field(default_factory=dict)
    source: Mapping[str, Source] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        scenarios: Mapping[str, Mapping[str, Any]],
        clip_ids: Iterable[str],
        with_speakers: bool = True,
    ) -> Reference:
        """Fit on the clips `clip_ids`, the training ones; those without prosody count nowhere.

        `with_speakers=False` fits no speaker's pitch, for a split that holds out whole speakers:
        a model must not learn from levels that no clip it is judged on can have.
        """
        clips = [scenarios[clip_id] for clip_id in sorted(clip_ids)]
        measured = [(clip["speaker"], clip["prosody"]) for clip in clips if clip["prosody"]]
        speakers_hz = _speakers_hz(measured) if with_speakers else {}
        values: dict[str, list[float]] = defaultdict(list)
        for speaker, record in measured:
            for name, value in _comparable(record, speakers_hz.get(speaker)).items():
                values[name].append(value)
        fitted = {name: _terciles(found) for name, found in values.items()}
        return cls(
            terciles={
                name: fitted.get(name) or _PUBLISHED_TERCILES[name] for name in TERCILE_FIELDS
            },
            speakers_hz=speakers_hz,
            source={
                name: "training clips" if fitted.get(name) else "published"
                for name in TERCILE_FIELDS
            },
        )

    def record(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "terciles": {name: list(limits) for name, limits in self.terciles.items()},
            "speakers_hz": dict(self.speakers_hz),
            "source": dict(self.source),
        }

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Reference:
        """Return what `record` was made from. Raises pydantic.ValidationError for any other."""
        checked = ReferenceRecord.model_validate(record)
        return cls(checked.terciles, checked.speakers_hz, checked.source)

    def described(self, record: Record, speaker: str) -> dict[str, Any]:
        """Return `record` with what it is by comparison.

        Adds `words` (field -> low, medium or high, measured fields only), `f0_level_st` (None
        without a reference for `speaker`) and `f0_level_reference` ("speaker" or "none").
        """
        speaker_hz = self.speakers_hz.get(speaker)
        values = _comparable(record, speaker_hz)
        return {
            **record,
            "words": {name: self._word(name, value) for name, value in values.items()},
            "f0_level_st": values.get("f0_level_st"),
            "f0_level_reference": "none" if speaker_hz is None else "speaker",
        }

    def described_clips(
        self, scenarios: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        """Return the clips with every prosody record described."""
        return {
            clip_id: {
                **clip,
                "prosody": clip["prosody"] and self.described(clip["prosody"], clip["speaker"]),
            }
            for clip_id, clip in scenarios.items()
        }

    def _word(self, name: str, value: float) -> str:
        return LEVELS[sum(value >= limit for limit in self.terciles[name])]


PUBLISHED = Reference(_PUBLISHED_TERCILES, source=dict.fromkeys(TERCILE_FIELDS, "published"))


def _speakers_hz(measured: list[tuple[str, Record]]) -> dict[str, float]:
    by_speaker: dict[str, list[float]] = defaultdict(list)
    for speaker, record in measured:
        if record.get("f0_median_hz") is not None:
            by_speaker[speaker].append(record["f0_median_hz"])
    return {
        speaker: round(float(np.median(values_hz)), _DECIMALS)
        for speaker, values_hz in sorted(by_speaker.items())
        if len(values_hz) >= MIN_CLIPS
    }


def _comparable(record: Record, speaker_hz: float | None) -> dict[str, float]:
    """The fields that have terciles and could be measured; a clip without pause has no longest."""
    values = {name: record.get(name) for name in TERCILE_FIELDS}
    if not record.get("pause_count"):
        del values["pause_longest_s"]
    median_hz = record.get("f0_median_hz")
    values["f0_level_st"] = None
    if speaker_hz is not None and median_hz is not None:
        values["f0_level_st"] = round(12.0 * float(np.log2(median_hz / speaker_hz)), _DECIMALS)
    return {name: value for name, value in values.items() if value is not None}


def _terciles(values: list[float]) -> tuple[float, float] | None:
    if len(values) < MIN_VALUES:
        return None
    low, high = np.quantile(values, [1 / 3, 2 / 3])
    return round(float(low), _DECIMALS), round(float(high), _DECIMALS)
