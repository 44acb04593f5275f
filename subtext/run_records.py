"""What the JSON files of a run directory must hold for the steps that read them.

The files are our own, but they are copied, edited and cut short by full disks.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    RootModel,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from subtext.errors import DataError, Problem, reason_of
from subtext.validation import problems_of

_Interval = tuple[float, float]


def _with_trained(passes: dict[str, Any]) -> dict[str, Any]:
    if "trained" not in passes:
        raise ValueError("lacks the trained policy")
    return passes


class _Figures(BaseModel):
    accuracy: float
    accuracy_interval: _Interval
    f1_weighted: float
    majority_accuracy: float
    well_formed_rate: float
    strict_rate: float
    mean_reward: float
    n_eval_clips: int
    n_with_prosody: int


class _Baseline(BaseModel):
    accuracy: float
    accuracy_interval: _Interval


class _Compared(BaseModel):
    n: int
    accuracy: float
    difference: float
    interval: _Interval
    p_holm: float
    verdict: Literal["better", "worse", "not distinguishable"]


class _Comparison(_Compared):
    name: str
    kind: Literal["policy", "baseline"]
    accuracy_against: float


class _AblationRow(_Compared):
    label: str
    flip_rate: float
    strict_rate: float
    n_prompts_changed: int


class _Doubt(BaseModel):
    name: str
    message: str


class _SeenAlarm(_Doubt):
    step: int


class _SeenAlarms(RootModel[list[_SeenAlarm]]):
    pass


class _JudgedModel(BaseModel):
    model: str
    n_judged: int
    n_trained_on: int | None
    n_same_scene: int | None


class _Champion(BaseModel):
    version: int
    uri: str
    n_shared: int
    n_trained_on: int
    reason: str | None


class _Evaluation(BaseModel):
    schema_: Literal["subtext.evaluation/1"] = Field(alias="schema")
    verdict: str
    passes: Annotated[dict[str, _Figures], AfterValidator(_with_trained)]
    baselines: dict[str, _Baseline]
    comparisons: list[_Comparison]
    ablations: dict[str, _AblationRow]
    alarms: list[_Doubt]
    passed_alarms: list[_SeenAlarm] = []
    warnings: list[_Doubt]
    smallest_gain: float | None
    champion: _Champion | None
    judged_model: _JudgedModel | None


class _Reason(BaseModel):
    rule: str
    passed: bool
    text: str


class _Gate(BaseModel):
    decision: Literal["promote", "stay"]
    reasons: list[_Reason]


class _Record(BaseModel):
    clip_id: str
    gold: Literal["sarcastic", "sincere"]
    predicted: Literal["sarcastic", "sincere"] | None
    confidence: float
    p_sarcastic: float
    correct: bool
    well_formed: bool
    strict: bool
    is_pivot: bool
    reward_total: float
    n_tokens: int
    completion_text: str


class _Judged(BaseModel):
    results: list[_Record]

    @field_validator("results")
    @classmethod
    def _once_each(cls, results: list[_Record]) -> list[_Record]:
        counts = Counter(record.clip_id for record in results)
        if twice := sorted(clip_id for clip_id, n in counts.items() if n > 1):
            raise ValueError(f"judges {len(twice)} clips twice, for example {twice[0]}")
        return results


class _History(RootModel[list[dict[str, float | None]]]):
    pass


class _Rewarded(BaseModel):
    reward: float | None
    accuracy: float | None


class _Stopped(BaseModel):
    alarm: str
    step: int


class _Training(BaseModel):
    finished: bool
    steps: int
    train_runtime_s: float
    resumed_at: list[int]
    stopped: _Stopped | None
    first: _Rewarded
    final: _Rewarded


class _HeldOut(BaseModel):
    passes: Annotated[dict[str, _Judged], AfterValidator(_with_trained)]


class _Version(BaseModel):
    name: str
    version: int
    alias: str
    uri: str


class _Tracking(BaseModel):
    run_id: str
    uri: str
    model: _Version | None = None


class _Landed(BaseModel):
    url: str
    revision: str


class _Published(RootModel[dict[str, _Landed]]):
    pass


class _Score(BaseModel):
    accuracy: float
    accuracy_interval: tuple[float, float]
    auroc: float | None


class _Overlap(BaseModel):
    n_both_sides: int
    n_held_out: int
    held_out_share_known: float


class _SceneExample(BaseModel):
    clips: tuple[str, str]
    line: str


class _Scenes(BaseModel):
    n_pairs_across: int
    n_lines_across: int
    examples: list[_SceneExample]


class _LeakReport(BaseModel):
    split: str
    n_held_out: int
    held_out_majority: float
    scenes: _Scenes
    speakers: _Overlap
    shows: _Overlap
    baselines: dict[str, _Score]


_ClipIds = Annotated[list[str], Field(min_length=1)]


class _Split(BaseModel):
    """Its other fields are compared with the configuration where the clips are loaded."""

    train: _ClipIds
    held_out: _ClipIds
    judged: _ClipIds
    data_digest: Annotated[str, Field(min_length=1)]

    @field_validator("held_out")
    @classmethod
    def _apart_from_train(cls, held_out: list[str], found: ValidationInfo) -> list[str]:
        if shared := set(held_out) & set(found.data.get("train", ())):
            raise ValueError(f"shares {len(shared)} clips with train, for example {min(shared)}")
        return held_out

    @field_validator("judged")
    @classmethod
    def _of_the_held_out(cls, judged: list[str], found: ValidationInfo) -> list[str]:
        if others := set(judged) - set(found.data.get("held_out", judged)):
            raise ValueError(f"has {len(others)} clips not held out, for example {min(others)}")
        return judged


_SHAPES: dict[str, type[BaseModel]] = {
    "metrics.json": _Evaluation,
    "held_out_eval.json": _HeldOut,
    "log_history.json": _History,
    "training.json": _Training,
    "alarms.json": _SeenAlarms,
    "champion.json": _Champion,
    "judged_model.json": _JudgedModel,
    "gate.json": _Gate,
    "tracking.json": _Tracking,
    "published.json": _Published,
    "leak_report.json": _LeakReport,
    "split.json": _Split,
}
_REMEDIES = {
    "held_out_eval.json": "Copy it back from the MLflow run's artifacts, or judge in a new run.",
    "metrics.json": "Copy it back from the MLflow run's artifacts, or judge in a new run.",
    "alarms.json": "Delete it: what still holds is raised again when training goes on.",
    "tracking.json": "Copy it back, or write run_id (of the run of that name in MLflow) and uri.",
    "published.json": "Delete it and run flows.publish_flow: what landed is not sent twice.",
    "leak_report.json": "Copy it back from the MLflow run's artifacts, or delete it: the table of "
    "leaks is then left out.",
    "training.json": "Delete it and start the run again under the same training.run_id: training "
    "goes on from its newest checkpoint.",
    "config.json": "Copy it back from the MLflow run's artifacts, or train a new run.",
    "split.json": "Copy it back from the MLflow run's artifacts, or train a new run.",
    "prosody_reference.json": "Copy it back from the MLflow run's artifacts, or train a new run.",
}
_COPY = "Copy it back from the MLflow run's artifacts."


def check_shape(path: Path, value: Any) -> None:
    """Raise DataError where a record that has a known shape lacks what is read from it."""
    shape = _SHAPES.get(path.name)
    if shape is None:
        return
    try:
        # As JSON, not as Python values: there "0.5" is no number and a lone surrogate no text.
        shape.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise shape_error(path, error) from None


def shape_error(path: Path, error: ValidationError) -> DataError:
    """The DataError that names file, field and value of everything pydantic found."""
    return DataError("Run directory refused", list(problems_of(str(path), error, remedy(path))))


def unreadable(path: Path, error: OSError | ValueError) -> DataError:
    """The DataError for a file that can't be read or holds no strict JSON."""
    said = f"can't be read: {reason_of(error)}"
    problem = Problem(path.parent.name, path.name, str(path), said, remedy(path))
    return DataError("Run directory refused", [problem])


def remedy(path: Path) -> str:
    """What a user can do where the record at `path` is missing or broken."""
    return _REMEDIES.get(path.name, _COPY)
