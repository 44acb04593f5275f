"""The first step of a run: refuse in seconds what cannot work, then make the run directory."""

from __future__ import annotations

import sys

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext
from prefect.logging import get_run_logger
from pydantic import BaseModel

from subtext.prepare import prepare_run
from subtext.profiles import resolve
from subtext.publishing.hub import check_access, require_token
from subtext.tracking import check_reachable, tracking_uri
from tasks.artifacts import show_leaks
from tasks.hub_token import environment_with_token
from tasks.library_log import library_log


@task(name="prepare", cache_policy=NO_CACHE)
def prepare(profile: str, overrides: BaseModel) -> str:
    """Check configuration, secrets, machine and data; return the path of the run directory."""
    get_run_logger().info("Python %s (%s)", sys.version.split()[0], sys.executable)
    publish = resolve(profile, overrides).publish
    check_access(publish, require_token(publish, environment_with_token()))
    check_reachable(tracking_uri())
    with library_log():
        run = prepare_run(
            profile,
            overrides.model_dump(exclude_none=True),
            default_run_id=_default_run_id(profile),
        )
    show_leaks(run)
    return str(run.path)


def _default_run_id(profile: str) -> str:
    """Profile, UTC time and flow run: the same again when Prefect retries the flow run."""
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    created = context.flow_run.created
    assert created is not None
    return f"{profile}-{created:%Y%m%d-%H%M%S}-{str(context.flow_run.id)[:8]}"
