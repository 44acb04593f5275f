"""Trained models by name: a version of the registry, the folder or id of a run, or an adapter."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from subtext.config import PromptConfig
from subtext.errors import DataError, Problem, TrackingError
from subtext.judge import Judge
from subtext.paths import project_root
from subtext.policy.adapter_record import ADAPTER_RECORD, read_adapter_record
from subtext.run_dir import RunDir
from subtext.tracking.lookup import MODEL_SCHEME, find_version
from subtext.tracking.store import client, mlflow_errors, tracking_uri

_ADAPTER_IN_VERSION = "artifacts/adapter"
_SPLIT = "split.json"


def load_judge(model: str, base_folder: str = "") -> Judge:
    """Load a judge by a registered version (`models:/name@alias`, `models:/name/version`), by the
    folder of a run or of an adapter, or by the id of a run in `runs/`.

    Raises TrackingError or DataError where there is none, and what `Judge.load` raises.
    """
    with adapter_of(model) as adapter:
        return Judge.load(adapter, base_folder)


def shown_name(model: str) -> str:
    """Return what names `model` on any machine: the version that an alias names now, the id of a
    run, or the name of an adapter's folder. Raises TrackingError or DataError."""
    if not model.startswith(MODEL_SCHEME):
        adapter = _local_adapter(model)
        run = RunDir(adapter.parent)
        return run.run_id if adapter == run.adapter else adapter.name
    version = find_version(model)
    return f"{MODEL_SCHEME}{version.name}/{version.version}"


def model_prompt(model: str) -> PromptConfig:
    """Return what `model` was trained to read. Raises TrackingError or DataError."""
    with adapter_of(model, ADAPTER_RECORD) as adapter:
        return PromptConfig.model_validate(read_adapter_record(adapter)["prompt"])


def training_split(model: str) -> dict[str, Any] | None:
    """Return split.json of the run that trained `model`; None for an adapter outside of its run.

    Raises TrackingError for a version whose MLflow run is unknown or lacks it, DataError for a
    broken one.
    """
    if model.startswith(MODEL_SCHEME):
        return _tracked_split(find_version(model))
    run = RunDir(_local_adapter(model).parent)
    split: dict[str, Any] | None = run.read(run.split)
    return split


@contextlib.contextmanager
def adapter_of(model: str, only: str = "") -> Iterator[Path]:
    """Give the folder of a model's adapter; that of a registered version lasts as the block does,
    and holds the file `only`, where one is named.

    Raises TrackingError or DataError.
    """
    if not model.startswith(MODEL_SCHEME):
        yield _local_adapter(model)
        return
    version = find_version(model)
    with tempfile.TemporaryDirectory() as folder:
        yield _downloaded(version, folder, only)


def _local_adapter(model: str) -> Path:
    for folder in _folders(model):
        for adapter in (folder, RunDir(folder).adapter):
            if (adapter / ADAPTER_RECORD).exists():
                return adapter.resolve()
    problem = Problem(
        "command line", "model", model, "is no registered version, run or adapter",
        "Give models:/subtext@challenger, models:/subtext/3, or a folder such as runs/<id>.",
    )  # fmt: skip
    raise DataError("Model not found", [problem])


def _folders(model: str) -> Iterator[Path]:
    with contextlib.suppress(RuntimeError):  # "~name" of nobody here
        yield Path(model).expanduser()
    yield project_root() / "runs" / model


def _downloaded(version: Any, folder: str, only: str) -> Path:
    from mlflow.artifacts import download_artifacts

    with mlflow_errors(f"hand out version {version.version} of {version.name}"):
        # models:/… would be looked up in MLflow's global store
        source = client(tracking_uri()).get_model_version_download_uri(
            version.name, version.version
        )
        uri = f"{source.rstrip('/')}/{_ADAPTER_IN_VERSION}/{only}".rstrip("/")
        found = Path(download_artifacts(uri, dst_path=folder, tracking_uri=tracking_uri()))
        return found.parent if only else found


def _tracked_split(version: Any) -> dict[str, Any]:
    """split.json as the version's MLflow run has it."""
    if not version.run_id:
        raise TrackingError(
            f"version = {version.version}: this version of {version.name!r} names no MLflow run, "
            "so which clips it was trained on is not known. Register it from a training run."
        )
    with (
        tempfile.TemporaryDirectory() as folder,
        mlflow_errors(f"hand out the split of version {version.version} of {version.name}"),
    ):
        found = client(tracking_uri()).download_artifacts(version.run_id, _SPLIT, folder)
        copy = RunDir(Path(found).parent)
        split: dict[str, Any] = copy.require(copy.split)
        return split
