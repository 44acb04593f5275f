"""The registered model: MLflow runs this file to build the pyfunc (models-from-code, no pickle).

`predict` takes a table of clips with the columns `utterance` and, optional, `context`,
`context_speakers` (lists of text), `speaker`, `clip_id` (text), and either `prosody` (a record or
null) or `audio` (the path of the line's sound, which is then measured; or null). It returns, row by
row under the same index, `label` ("sarcastic", "sincere" or None), `confidence` and `p_sarcastic`
(0..1), `reasoning` (text or None) and `well_formed`.
Arrays, numpy's numbers and NaN, as a table has them that was a parquet file, read as lists, numbers
and null.
Nothing imports this module: it needs MLflow at module level and sets MLflow's current model.
"""

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import mlflow
import numpy as np
import pandas as pd

FIELDS = (
    "clip_id", "utterance", "context", "context_speakers", "speaker", "prosody", "audio",
)  # fmt: skip
# text columns would turn None into NaN
DTYPES = {
    "label": object,
    "confidence": float,
    "p_sarcastic": float,
    "reasoning": object,
    "well_formed": bool,
}


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
        from subtext.judge_clips import measured_clips

        clips = [_clip(row) for row in model_input.to_dict(orient="records")]
        answers = self._judge.judge(measured_clips(clips, "row"))
        columns = {
            name: pd.Series([answer[name] for answer in answers], model_input.index, dtype)
            for name, dtype in DTYPES.items()
        }
        return pd.DataFrame(columns)


def _clip(row: dict[str, Any]) -> dict[str, Any]:
    """The row's fields without missing values."""
    clip = {key: _plain(row[key]) for key in FIELDS if key in row}
    if isinstance(clip.get("prosody"), dict):
        clip["prosody"] = _as_measured(clip["prosody"])
    return {key: value for key, value in clip.items() if value is not None}


def _plain(value: Any) -> Any:
    """`value` as JSON has it: lists, Python's numbers, None for every kind of missing value."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else value


def _as_measured(record: dict[str, Any]) -> dict[str, Any]:
    """`record` as it was before a parquet file gave all records the fields of any, with null, and
    pandas made floats of whole numbers beside null."""
    from subtext.prosody.schema import FIELDS as RULES

    required = {name for name, rule in RULES.items() if rule.required} | {"contour_st"}
    whole = {name for name, rule in RULES.items() if rule.integer}
    return {
        name: int(value)
        if name in whole and isinstance(value, float) and value.is_integer()
        else value
        for name, value in record.items()
        if value is not None or name in required
    }


mlflow.models.set_model(JudgeModel())
