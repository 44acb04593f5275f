"""The MLflow run of a run directory: started once, resumed after a crash, ended as it ended."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from subtext import strict_json
from subtext.data.folder import data_root as folder_of
from subtext.errors import TrackingError
from subtext.evaluation.leaks import leak_metrics
from subtext.run_dir import RunDir
from subtext.secrets_scan import find_secret, known_secrets
from subtext.tracking.processes import this_process
from subtext.tracking.store import (
    check_reachable,
    client,
    mlflow_errors,
    shown_uri,
    sqlite_path,
    tracking_uri,
)

_PARAMS_PER_REQUEST = 100
_METRICS_PER_REQUEST = 500  # MLflow takes at most 1000
_PARAM_LENGTH = 6000
_TAG_LENGTH = 5000
_DIGEST_LENGTH = 36  # MLflow's column; the whole digest goes beside it as a tag

ENDED_BECAUSE = "ended_because"
STOPPED_BY_ALARM = "stopped_by_alarm"

# Formats that can't carry a pickle: training_args.bin, which holds the Hub token, and optimizer
# state stay on this machine whatever folder they are in.
PLAIN_SUFFIXES = (
    ".html", ".jinja", ".json", ".jsonl", ".md", ".model", ".parquet", ".png", ".safetensors",
    ".svg", ".txt",
)  # fmt: skip


def start_run(run: RunDir, flow_run_id: str, name: str) -> str:
    """Start the MLflow run of `run`, or resume the one it has, and return its id.

    Logs the configuration as parameters and file, the dataset with its digest, the split (`split`,
    `split_seed` and `data_digest` are tags too), and the leak report's figures as `leak/...`.
    `flow_run_id` and `name` are those of the flow run, kept as tags; the run is named after the
    run directory. A parameter that a resumed run changed goes to a tag `resumed.<name>`, since
    MLflow's parameters can't change; tags that said how it ended before go. The data folder need
    not be on this machine. Raises MachineError or TrackingError.
    """
    uri = tracking_uri()
    check_reachable(uri)
    recorded = strict_json.read(run.config)
    tags = {
        "run_id": run.run_id,
        "run_dir": run.path.name,
        "flow_run_id": flow_run_id,
        "flow_run_name": name,
        **this_process(),
        **_split_tags(run),
    }
    with mlflow_errors(f"start the run of {run.run_id}"):
        store = client(uri)
        found, record = _resumable(store, run), run.read(run.tracking, {})
        if found is None:
            experiment_id = _experiment_id(store, uri, recorded["config"]["tracking"]["experiment"])
            found = store.create_run(experiment_id, run_name=run.run_id, tags=tags)
            record = {}  # its registered version is another store's
        run_id: str = found.info.run_id
        record |= {"run_id": run_id, "uri": shown_uri(uri)}
        record |= {"experiment_id": found.info.experiment_id}
        strict_json.write(run.tracking, record)
        params = {"profile": recorded["profile"], **_flat(recorded["config"])}
        tags |= _log_params(store, run_id, found.data.params, params)
        # the process first: whoever sees RUNNING asks whether it lives
        store.log_batch(run_id, tags=_tags(tags))
        store.update_run(run_id, status="RUNNING")
        for ended in (ENDED_BECAUSE, STOPPED_BY_ALARM):
            if ended in found.data.tags:
                store.delete_tag(run_id, ended)
        _log_dataset(store, run_id, _dataset(run, recorded["config"]["data"]["root"]))
        _log_leaks(store, found, run)
        for path in (run.config, run.split, run.leak_report):
            if path.exists():
                store.log_artifact(run_id, str(path))
    return run_id


def end_run(
    run: RunDir, status: Literal["FINISHED", "FAILED", "KILLED"], stopped_by_alarm: str = ""
) -> None:
    """End the MLflow run with what really happened; `stopped_by_alarm` becomes a tag.

    Without a started run there is nothing to end. Raises TrackingError.
    """
    if not run.tracking.exists():
        return
    check_reachable(tracking_uri())  # a cancelled process has seconds
    with mlflow_errors(f"end the run of {run.run_id}"):
        store, run_id = client(tracking_uri()), mlflow_run_id(run)
        if stopped_by_alarm:
            store.set_tag(run_id, STOPPED_BY_ALARM, stopped_by_alarm[:_TAG_LENGTH])
        store.set_terminated(run_id, status=status)


def log_artifacts(run: RunDir) -> list[str]:
    """Log the files of the run directory under their own names; return those names, sorted.

    Checkpoints and every format that can carry a pickle stay behind. Raises TrackingError.
    """
    left_behind = run.checkpoints.values()
    files = sorted(
        path
        for path in plain_files(run.path)
        if path != run.tracking and not any(path.is_relative_to(folder) for folder in left_behind)
    )
    names = [path.relative_to(run.path).as_posix() for path in files]
    _refuse_secrets(files)
    with mlflow_errors(f"take the files of {run.run_id}"):
        store, run_id = client(tracking_uri()), mlflow_run_id(run)
        for path, name in zip(files, names, strict=True):
            store.log_artifact(run_id, str(path), name.rpartition("/")[0] or None)
    return names


def _refuse_secrets(files: list[Path]) -> None:
    secrets = known_secrets(os.environ)
    for path in files:
        numbers = path.suffix in (".safetensors", ".parquet")
        if secret := find_secret(path.read_bytes(), secrets, encoded=not numbers):
            raise TrackingError(
                f"{path} holds {secret}, so nothing of this run goes to MLflow. Remove it from the "
                "file, and revoke it if it is real."
            )


def log_metrics(store: Any, run_id: str, figures: Mapping[str, float], when_ms: int) -> None:
    """Log `figures` at step 0, dated `when_ms` (since 1970): the same date again adds nothing."""
    from mlflow.entities import Metric

    metrics = [Metric(name, value, when_ms, 0) for name, value in figures.items()]
    for start in range(0, len(metrics), _METRICS_PER_REQUEST):
        chunk = metrics[start : start + _METRICS_PER_REQUEST]
        store.log_batch(run_id, metrics=chunk, synchronous=True)


def mlflow_run_id(run: RunDir) -> str:
    """The id of the MLflow run that `start_run` recorded. Raises TrackingError without one."""
    record = run.read(run.tracking, {})
    if "run_id" not in record:
        raise TrackingError(
            f"{run.tracking}: run_id is missing, so the MLflow run of {run.run_id} is unknown. "
            f'Copy the file back, or write {{"run_id": …, "uri": …}} there: the id that MLflow '
            f"shows for the run named {run.run_id}, and the store's address."
        )
    return str(record["run_id"])


def plain_files(folder: Path) -> Iterator[Path]:
    """The files under `folder` that may leave this machine: known formats without pickles."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if (
            path.is_file()
            and not path.is_symlink()
            and path.suffix in PLAIN_SUFFIXES
            and not hidden
        ):
            yield path


def _resumable(store: Any, run: RunDir) -> Any | None:
    """The run recorded in the run directory, unless this store never had it or deleted it."""
    from mlflow.exceptions import MlflowException

    run_id = run.read(run.tracking, {}).get("run_id")
    if run_id is None:
        return None
    try:
        found = store.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    return found if found.info.lifecycle_stage == "active" else None


def _experiment_id(store: Any, uri: str, name: str) -> str:
    from mlflow.exceptions import MlflowException

    experiment = store.get_experiment_by_name(name)
    if experiment is None:
        database = sqlite_path(uri)
        # without a server MLflow would put artifacts into the current directory
        beside = database and (database.parent / "mlartifacts").as_uri()
        try:
            return str(store.create_experiment(name, artifact_location=beside))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            experiment = store.get_experiment_by_name(name)  # another run was quicker
    if experiment.lifecycle_stage != "active":
        raise TrackingError(
            f"tracking.experiment = {name!r}: was deleted in MLflow. Restore it "
            f"(`mlflow experiments restore -x {experiment.experiment_id}`) or set another name."
        )
    return str(experiment.experiment_id)


def _flat(config: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {
        f"{section}.{field}": value if isinstance(value, str) else json.dumps(value)
        for section, fields in config.items()
        for field, value in fields.items()
    }


def _log_params(
    store: Any, run_id: str, existing: Mapping[str, str], params: Mapping[str, str]
) -> dict[str, str]:
    """Log the parameters the run lacks; return those it has otherwise, as tags."""
    from mlflow.entities import Param

    cut = {key: value[:_PARAM_LENGTH] for key, value in params.items()}
    new = [Param(key, value) for key, value in cut.items() if key not in existing]
    for start in range(0, len(new), _PARAMS_PER_REQUEST):
        store.log_batch(run_id, params=new[start : start + _PARAMS_PER_REQUEST], synchronous=True)
    return {
        f"resumed.{key}": value for key, value in cut.items() if existing.get(key, value) != value
    }


def _split_tags(run: RunDir) -> dict[str, str]:
    split = run.read(run.split)
    names = {"kind": "split", "seed": "split_seed", "fold": "split_fold"}
    found = {tag: str(split[key]) for key, tag in names.items() if split.get(key) is not None}
    return {**found, "data_digest": split["data_digest"]}


def _log_leaks(store: Any, found: Any, run: RunDir) -> None:
    """Log the leak report's figures, dated by the run's start: a resumed run adds nothing."""
    report = run.read(run.leak_report)
    if report is not None:
        log_metrics(store, found.info.run_id, leak_metrics(report), found.info.start_time)


def _tags(values: Mapping[str, str]) -> list[Any]:
    from mlflow.entities import RunTag

    return [RunTag(key, value) for key, value in values.items()]


def _log_dataset(store: Any, run_id: str, dataset: Any) -> None:
    """Log the clips of a run; a second time where another run logged the same at that moment:
    MLflow looks for the dataset, then adds it, and the database refuses the slower of two."""
    from mlflow.exceptions import MlflowException

    try:
        store.log_inputs(run_id, [dataset])
    except MlflowException:
        store.log_inputs(run_id, [dataset])


def _dataset(run: RunDir, data_root: str) -> Any:
    """The clips as an MLflow dataset. Its digest is the first 36 of the digest's 64 characters."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    split = strict_json.read(run.split)
    root, digest = folder_of(data_root), split["data_digest"]
    counts = {f"n_{key}": len(split[key]) for key in ("train", "held_out", "judged")}
    dataset = Dataset(
        name=root.name,
        digest=digest[:_DIGEST_LENGTH],
        source_type="local",
        source=json.dumps({"uri": str(root)}),
        profile=json.dumps(counts),
    )
    tags = {"mlflow.data.context": "training", "sha256": digest}
    return DatasetInput(dataset, [InputTag(key, value) for key, value in tags.items()])
