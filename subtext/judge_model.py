"""The registered model: MLflow runs this file to build the pyfunc (models-from-code, no pickle).

`predict` takes a table of clips with the columns `utterance` and, optional, `context`,
`context_speakers` (lists of text), `speaker`, `clip_id` (text) and `prosody` (a record or null);
it returns, row by row under the same index, `label` ("sarcastic", "sincere" or None),
`confidence` (0..1), `reasoning` (text or None) and `well_formed`.
Nothing imports this module: it needs MLflow at module level and sets MLflow's current model.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd

from subtext.errors import DataError, Problem
from subtext.prosody.schema import record_problems

FIELDS = ("clip_id", "utterance", "context", "context_speakers", "speaker", "prosody")
# text columns would turn None into NaN
DTYPES = {"label": object, "confidence": float, "reasoning": object, "well_formed": bool}


class JudgeModel(mlflow.pyfunc.PythonModel):
    """`subtext.judge.Judge` behind MLflow's table interface."""

    def load_context(self, context: Any) -> None:
        """Load the adapter inside the version on the base model that it names."""
        from subtext.judge import Judge

        self._judge = Judge.load(Path(context.artifacts["adapter"]))

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Judge each row. Raises DataError that lists every row which can't be judged."""
        clips = [_clip(row) for row in model_input.to_dict(orient="records")]
        problems = [item for row, clip in enumerate(clips) for item in _problems(row, clip)]
        if problems:
            raise DataError("Table refused", problems)
        answers = self._judge.judge(clips)
        columns = {
            name: pd.Series([answer[name] for answer in answers], model_input.index, dtype)
            for name, dtype in DTYPES.items()
        }
        return pd.DataFrame(columns)


def _clip(row: dict[str, Any]) -> dict[str, Any]:
    """The row's fields without missing values, and arrays as lists."""
    return {
        key: row[key].tolist() if isinstance(row[key], np.ndarray) else row[key]
        for key in FIELDS
        if key in row and not _missing(row[key])
    }


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def _problems(row: int, clip: dict[str, Any]) -> Iterator[Problem]:
    where, text, prosody = f"row {row}", clip.get("utterance"), clip.get("prosody")
    if not isinstance(text, str) or not text.strip():
        yield Problem(where, "utterance", text, "is no text", "Give the line to judge.")
    if isinstance(prosody, dict):
        yield from record_problems(f"{where}, prosody", prosody)
    elif prosody is not None:
        remedy = "Give a record of prosody.json, or null."
        yield Problem(where, "prosody", prosody, "is no record", remedy)
    lists = {key: clip[key] for key in ("context", "context_speakers") if key in clip}
    bad = [key for key, value in lists.items() if not _is_list_of_text(value)]
    for key in bad:
        yield Problem(where, key, lists[key], "is no list of text", "Give one text a line.")
    n_lines, speakers = len(lists.get("context", [])), lists.get("context_speakers", [])
    if not bad and speakers and len(speakers) != n_lines:
        yield Problem(
            where, "context_speakers", speakers, f"does not fit {n_lines} lines of context",
            "Give one speaker a line, or none at all.",
        )  # fmt: skip


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


mlflow.models.set_model(JudgeModel())
