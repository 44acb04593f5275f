"""The first step of a run: refuse in seconds what cannot work, then make the run directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger
from pydantic import BaseModel

from subtext.evaluation.official_folds import fold_overrides
from subtext.plan.plan import make_plan
from subtext.prepare import prepare_run
from subtext.profiles import resolve
from subtext.publishing.access import check_access, require_token
from subtext.run_dir import RunDir
from subtext.tracking import check_reachable, model_prompt, tracking_uri
from tasks.artifacts import show_leaks, show_plan
from tasks.library_log import library_log
from tasks.run_id import default_run_id
from tasks.secrets import environment_with_token


@task(name="prepare", cache_policy=NO_CACHE)
def prepare(profile: str, overrides: BaseModel) -> str:
    """Check machine, data, secrets and servers against the plan; return the run directory."""
    knobs = overrides.model_dump(exclude_none=True)
    _check_plan(profile, knobs)
    run = _prepared(profile, knobs, default_run_id(profile))
    show_leaks(RunDir(Path(run)))
    return run


@task(name="prepare evaluation", cache_policy=NO_CACHE)
def prepare_evaluation(profile: str, overrides: BaseModel, model: str) -> str:
    """Prepare a run that trains nothing: a trained model judges its clips, in its own prompt."""
    knobs = overrides.model_dump(exclude_none=True)
    knobs["prompt"] = model_prompt(model).model_dump(mode="json")
    publish = resolve(profile, knobs).publish
    check_access(publish, require_token(publish, environment_with_token()))
    check_reachable(tracking_uri())
    return _prepared(profile, knobs, default_run_id(profile), model)


@task(name="prepare fold", task_run_name="prepare-fold-{fold}", cache_policy=NO_CACHE)
def prepare_fold(profile: str, overrides: BaseModel, fold: int) -> str:
    """Prepare the run that holds out one of MUStARD's official folds."""
    knobs = fold_overrides(overrides.model_dump(exclude_none=True), fold)
    _check_plan(profile, knobs)
    run = _prepared(profile, knobs, f"{default_run_id(profile)}-fold-{fold}")
    show_leaks(RunDir(Path(run)))
    return run


def _prepared(
    profile: str, overrides: dict[str, Any], run_id: str, judged_model: str | None = None
) -> str:
    get_run_logger().info("Python %s (%s)", sys.version.split()[0], sys.executable)
    with library_log():
        run = prepare_run(profile, overrides, default_run_id=run_id, judged_model=judged_model)
    return str(run.path)


def _check_plan(profile: str, overrides: dict[str, Any]) -> None:
    """Show what the training would need and take; refuse it with all its problems at once."""
    plan = make_plan(profile, overrides, environment_with_token())
    show_plan(plan)
    plan.refuse()
