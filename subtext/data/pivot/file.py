"""`pivot_set.json`: its configuration, the rule that selects from text scores, and its check.

    {"schema", "note", "config", "committee", "digest", "counts", "text_accuracy",
     "clips": {id: {"stratum", "reason", "label", "text_score", "members"}},
     "text_scores": {id: {"text_score", "members"}}}

`text_score` t is P(sarcastic) as words alone give it, `members` the same of each text model.
`clips` are the Pivot clips, `text_scores` all clips, so that the text-easy rest can be reported
too. The rule:

- Admissible: by sound alone, blind to label and text. A prosody record, enough voiced speech, no
  refused quality flag.
- "ambiguous": t within `ambiguous_within` of 0.5, or the committee is split: members take both
  sides and differ by at least `split_spread`. Decided before the label is looked at; otherwise
  a split clip would be ambiguous or misleading by its label.
- "misleading": not ambiguous, and sarcastic with t <= `misleading_below` or sincere with
  t >= `misleading_above`. Chosen by the committee's error, so that the committee scores 0 there
  by construction and any other model gains by regression to the mean; the fair headline is
  "ambiguous".

The file keeps every score, so the rule can be repeated without a text model. Loading does that: a
set made from other clips, edited by hand, or left behind by new prosody is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from subtext import strict_json
from subtext.data.clips import Scenarios
from subtext.data.folder import PIVOT_FILE
from subtext.errors import ConfigError, DataError, Problem
from subtext.validation import knob_problems, problems_of

PIVOT_SCHEMA = "subtext.pivot/1"
MISLEADING, AMBIGUOUS = "misleading", "ambiguous"
NOTE = (
    "Selected by text models that read words only, and by sound quality; never by hand or by a "
    "model that knows the delivery. Laughter that overlaps speech is not detected here, so clips "
    "with it are not left out."
)
_MEANT = ("utterance", "context", "speaker", "context_speakers", "show", "sarcasm")

Probability = Annotated[float, Field(ge=0, le=1)]


class NoPivotSetError(DataError):
    """These clips can have no Pivot Set: they are too few, or none is admissible."""


class PivotConfig(BaseModel):
    """How the Pivot Set is made; thresholds as in the science notes, fixed beforehand."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    misleading_below: float = Field(
        0.35, gt=0, lt=0.5, description="A sarcastic clip with t at most this misleads (0..0.5)."
    )
    misleading_above: float = Field(
        0.65, gt=0.5, lt=1, description="A sincere clip with t at least this misleads (0.5..1)."
    )
    ambiguous_within: float = Field(
        0.10, ge=0, lt=0.5, description="t at most this far from 0.5 is ambiguous; 0: only 0.5."
    )
    split_spread: float = Field(
        0.30, gt=0, le=1, description="Members on both sides of 0.5, this far apart; 1: never."
    )
    min_voiced_s: float = Field(
        0.5, ge=0, description="Voiced speech an admissible clip has at least, in s; 0: any."
    )
    refused_flags: tuple[Literal["clipped", "no_voice"], ...] = Field(
        ("clipped", "no_voice"), description="Quality flags that no admissible clip has; []: any."
    )
    n_folds: int = Field(5, ge=3, le=20, description="Scene-grouped folds of the text models.")
    n_repeats: int = Field(10, ge=1, le=50, description="Foldings that scores are averaged over.")
    seed: int = Field(0, ge=0, lt=2**32, strict=True, description="Seed of the first folding.")

    @model_validator(mode="after")
    def _strata_are_apart(self) -> Self:
        gap = min(0.5 - self.misleading_below, self.misleading_above - 0.5)
        if gap <= self.ambiguous_within:
            raise ValueError(
                f"ambiguous_within = {self.ambiguous_within} reaches misleading_below = "
                f"{self.misleading_below} or misleading_above = {self.misleading_above}: make it "
                f"smaller than {gap:g}"
            )
        return self


class _Score(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    text_score: Probability
    members: dict[str, Probability] = Field(min_length=1)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    schema_: Literal["subtext.pivot/1"] = Field(alias="schema")
    note: str
    config: PivotConfig
    committee: dict[str, Any]
    digest: str
    counts: dict[str, Any]
    text_accuracy: dict[str, Any]
    clips: dict[str, Any]
    text_scores: dict[str, _Score]


def parse_config(assignments: Iterable[str]) -> PivotConfig:
    """Return the configuration with e.g. `["n_folds=10", "seed=1"]` set.

    Raises ConfigError for an unknown name, a bad value and thresholds at odds.
    """
    given: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            problem = Problem(
                "command line", "--set", assignment, "is not name=value",
                "Write for example --set n_folds=10.",
            )  # fmt: skip
            raise ConfigError("Configuration refused", [problem])
        try:
            given[name.strip()] = json.loads(text)
        except ValueError:
            given[name.strip()] = text
    try:
        return PivotConfig.model_validate(given)
    except ValidationError as error:
        problems = list(knob_problems("pivot", error, PivotConfig))
        raise ConfigError("Configuration refused", problems) from None


def pivot_digest(scenarios: Scenarios) -> str:
    """Return the sha256 of what the scores are made from: lines, who speaks, show, label.

    Speakers and show count because masking reads them. The order of clips does not.
    """
    meant = {clip_id: [clip[name] for name in _MEANT] for clip_id, clip in scenarios.items()}
    return strict_json.digest(meant)


def pivot_strata(root: Path) -> dict[str, str]:
    """Return {clip id: stratum} of the Pivot clips in the folder `root`; {} without a Pivot Set, or
    with somebody's own list, which has no strata. The file was checked where clips were loaded."""
    path = root / PIVOT_FILE
    clips = strict_json.read(path)["clips"] if path.exists() else {}
    return {clip_id: clip["stratum"] for clip_id, clip in clips.items() if "stratum" in clip}


def inadmissible_reason(record: Mapping[str, Any] | None, config: PivotConfig) -> str:
    """Return why a clip with this prosody record can't be a Pivot clip, or "" where it can."""
    if record is None:
        return "no prosody"
    voiced_s = record.get("voiced_s")
    if voiced_s is None:
        return "voiced_s not measured"
    if flags := sorted(set(record.get("quality") or ()) & set(config.refused_flags)):
        return f"quality: {flags[0]}"
    return "too little voice" if voiced_s < config.min_voiced_s else ""


def select_pivot(
    scores: Mapping[str, Mapping[str, Any]], scenarios: Scenarios, config: PivotConfig
) -> dict[str, dict[str, Any]]:
    """Return the Pivot clips by the rule above; `scores` and result as in the file."""
    clips: dict[str, dict[str, Any]] = {}
    for clip_id, score in scores.items():
        clip = scenarios[clip_id]
        if inadmissible_reason(clip["prosody"], config):
            continue
        stratum, reason = _stratum(score, clip["sarcasm"], config)
        if stratum:
            label = "sarcastic" if clip["sarcasm"] else "sincere"
            clips[clip_id] = {**score, "stratum": stratum, "reason": reason, "label": label}
    return clips


def pivot_problems(content: Mapping[str, Any], scenarios: Scenarios) -> Iterator[Problem]:
    """Yield what is wrong with the content of pivot_set.json beside these clips.

    `scenarios` holds every clip with its `prosody` (record or None). Costs a hash and the rule; no
    text model is loaded. A file without "schema" is somebody's own list and is not checked here.
    """
    if "schema" not in content:
        return
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        for problem in problems_of(PIVOT_FILE, error, _remake("Damaged.")):
            yield replace(problem, value=_short(problem.value))
        return
    digest = pivot_digest(scenarios)
    if file.digest != digest or file.text_scores.keys() != scenarios.keys():
        yield Problem(
            PIVOT_FILE, "digest", file.digest, f"is not {digest}: it was made from other clips",
            _remake("Texts, speakers or labels changed."),
        )  # fmt: skip
        return
    scores = {clip_id: score.model_dump() for clip_id, score in file.text_scores.items()}
    expected = select_pivot(scores, scenarios, file.config)
    differing = sorted(
        clip_id
        for clip_id in expected.keys() | file.clips.keys()
        if expected.get(clip_id) != file.clips.get(clip_id)
    )
    if differing:
        yield Problem(
            PIVOT_FILE, "clips", differing[:5],
            f"{len(differing)} clip(s) are not what its scores and thresholds and today's prosody "
            "select", _remake("Prosody changed, or the file was edited."),
        )  # fmt: skip


def _stratum(score: Mapping[str, Any], sarcastic: bool, config: PivotConfig) -> tuple[str, str]:
    t, members = score["text_score"], score["members"].values()
    # Scores have four decimals; the rounding keeps 0.6 - 0.5 within 0.1.
    if round(abs(t - 0.5), 4) <= config.ambiguous_within:
        return AMBIGUOUS, "text score near 0.5"
    low, high = min(members), max(members)
    if low < 0.5 < high and round(high - low, 4) >= config.split_spread:
        return AMBIGUOUS, "committee split"
    if sarcastic and t <= config.misleading_below:
        return MISLEADING, "reads sincere"
    if not sarcastic and t >= config.misleading_above:
        return MISLEADING, "reads sarcastic"
    return "", ""


def _short(value: object) -> object:
    """A container as its size: a message that prints the whole file helps nobody."""
    return f"{len(value)} entries" if isinstance(value, dict | list) else value


def _remake(why: str) -> str:
    return f"{why} Make it again with `subtext data pivot`, or remove the file."
