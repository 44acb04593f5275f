"""The first step of a run: refuse in seconds what cannot work, then make the run directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from prefect.logging import get_run_logger
from pydantic import BaseModel

from subtext.evaluation.official_folds import fold_overrides
from subtext.prepare import prepare_run
from subtext.profiles import resolve
from subtext.publishing.hub import check_access, require_token
from subtext.run_dir import RunDir
from subtext.tracking import check_reachable, model_prompt, tracking_uri
from tasks.artifacts import show_leaks
from tasks.hub_token import environment_with_token
from tasks.library_log import library_log


@task(name="prepare", cache_policy=NO_CACHE)
def prepare(profile: str, overrides: BaseModel) -> str:
    """Check configuration, secrets, machine and data; return the path of the run directory."""
    run = _prepared(profile, overrides.model_dump(exclude_none=True), _default_run_id(profile))
    show_leaks(RunDir(Path(run)))
    return run


@task(name="prepare evaluation", cache_policy=NO_CACHE)
def prepare_evaluation(profile: str, overrides: BaseModel, model: str) -> str:
    """Prepare a run that trains nothing: a trained model judges its clips, in its own prompt."""
    knobs = overrides.model_dump(exclude_none=True)
    knobs["prompt"] = model_prompt(model).model_dump(mode="json")
    run = _prepared(profile, knobs, _default_run_id(profile))
    # What crosses this split says nothing of a model that was trained on another.
    RunDir(Path(run)).leak_report.unlink()
    return run


@task(name="prepare fold", task_run_name="prepare-fold-{fold}", cache_policy=NO_CACHE)
def prepare_fold(profile: str, overrides: BaseModel, fold: int) -> str:
    """Prepare the run that holds out one of MUStARD's official folds."""
    knobs = fold_overrides(overrides.model_dump(exclude_none=True), fold)
    run = _prepared(profile, knobs, f"{_default_run_id(profile)}-fold-{fold}")
    show_leaks(RunDir(Path(run)))
    return run


def _prepared(profile: str, overrides: dict[str, Any], default_run_id: str) -> str:
    get_run_logger().info("Python %s (%s)", sys.version.split()[0], sys.executable)
    publish = resolve(profile, overrides).publish
    check_access(publish, require_token(publish, environment_with_token()))
    check_reachable(tracking_uri())
    with library_log():
        return str(prepare_run(profile, overrides, default_run_id=default_run_id).path)


def _default_run_id(profile: str) -> str:
    """Profile, UTC time and flow run: the same again when Prefect retries the flow run."""
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    created = context.flow_run.created
    assert created is not None
    return f"{profile}-{created:%Y%m%d-%H%M%S}-{str(context.flow_run.id)[:8]}"
