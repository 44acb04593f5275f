"""The uploads of a run: the model card, which uploads there are, which landed, and one of them.

`published.json` of the run directory says what landed: repository, commit and sha256 of each
file. A commit id is recorded after its content was verified, so what is listed needs no repeat.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, get_args

from subtext import strict_json
from subtext.config import PublishConfig
from subtext.errors import DataError, Problem, PublishError
from subtext.policy.adapter_record import read_adapter_record
from subtext.publishing.card import render_card
from subtext.publishing.hub import BASE_S, ResultName, publish_adapter, publish_result
from subtext.run_dir import RunDir, load_config
from subtext.tracking.runs import mlflow_run_id

ADAPTER = "adapter"
RESULTS: tuple[ResultName, ...] = get_args(ResultName)


class UploadsError(PublishError):
    """Some uploads of an otherwise finished run failed for good; `run_path` is its directory."""

    def __init__(self, message: str, run_path: str) -> None:
        self.run_path = run_path
        super().__init__(message, retryable=False)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.run_path)


def write_card(run: RunDir) -> Path:
    """Write the model card of a judged run, over TRL's draft, and return its path.

    Raises DataError for a run without adapter or without metrics.
    """
    base = read_adapter_record(run.adapter)["base"]
    return strict_json.write_text(
        run.model_card, render_card(run, load_config(run), base, _metrics(run))
    )


def check_finished(run: RunDir) -> None:
    """Check that publishing finds what it reads: adapter, results, what landed before, and which
    MLflow run it is, where one was started.

    Raises DataError or TrackingError.
    """
    load_config(run)
    read_adapter_record(run.adapter)
    _metrics(run)
    run.read(run.published)
    if run.tracking.exists():
        mlflow_run_id(run)


def _metrics(run: RunDir) -> Any:
    metrics = run.read(run.metrics)
    if metrics is None:
        problem = Problem(
            str(run.path), run.metrics.name, None, "is not there: the card states the accuracy",
            "Judge it first: python -m flows.evaluate_flow --protocol run --model "
            f"{shlex.quote(str(run.path))}.",
        )  # fmt: skip
        raise DataError("No model card without results", [problem])
    return metrics


def planned_uploads(publish: PublishConfig) -> list[str]:
    """Names of what `publish` asks for, the adapter first."""
    adapter = [ADAPTER] if publish.adapter_repo else []
    return [*adapter, *(RESULTS if publish.results_repo else ())]


def missing_uploads(run: RunDir, publish: PublishConfig) -> list[str]:
    """Those of the planned uploads that `published.json` does not list."""
    landed = run.read(run.published, {})
    return [name for name in planned_uploads(publish) if name not in landed]


def upload(
    run: RunDir, name: str, publish: PublishConfig, token: str | None, base_s: float = BASE_S
) -> dict[str, Any]:
    """Publish one planned upload, record it in `published.json` and return the record.

    Once, within `base_s` and the time that the bytes need. Raises PublishError.
    """
    if not token:
        raise PublishError(f"{name}: HF_TOKEN is not set. Export a write token.", retryable=False)
    if name == ADAPTER:
        landed = publish_adapter(run, publish, token, base_s)
    else:
        landed = publish_result(run, _result_name(name), publish, token, base_s)
    record = {key: landed[key] for key in ("repo_id", "repo_type", "revision", "files", "url")}
    strict_json.write(run.published, {**run.read(run.published, {}), name: record})
    return record


def _result_name(name: str) -> ResultName:
    for known in RESULTS:
        if name == known:
            return known
    raise PublishError(
        f"upload {name!r}: choose of {ADAPTER}, {', '.join(RESULTS)}", retryable=False
    )
