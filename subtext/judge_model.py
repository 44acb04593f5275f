"""The registered model: MLflow runs this file to build the pyfunc (models-from-code, no pickle).

`predict` takes a table of clips with the columns `utterance` and, optional, `context`,
`context_speakers` (lists of text), `speaker`, `clip_id` (text), and either `prosody` (a record or
null) or `audio` (the path of the line's sound, which is then measured; or null). It returns, row by
row under the same index, `label` ("sarcastic", "sincere" or None), `confidence` and `p_sarcastic`
(0..1), `reasoning` (text or None) and `well_formed`.
Nothing imports this module: it needs MLflow at module level and sets MLflow's current model.
"""

import math
from pathlib import Path
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
    """The row's fields without missing values, and arrays as lists."""
    return {
        key: row[key].tolist() if isinstance(row[key], np.ndarray) else row[key]
        for key in FIELDS
        if key in row and not _missing(row[key])
    }


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


mlflow.models.set_model(JudgeModel())
