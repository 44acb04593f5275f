"""The first step of finishing a run that was trained before, here or on another machine."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE
from pydantic import BaseModel

from subtext.reopen import reopen
from subtext.summary import find_run
from subtext.tracking import check_reachable, tracking_uri
from tasks.library_log import library_log


@task(name="reopen", cache_policy=NO_CACHE)
def reopen_run(name: str, overrides: BaseModel) -> str:
    """Refuse what can't be finished here; return the path of the run directory."""
    check_reachable(tracking_uri())
    with library_log():
        return str(reopen(find_run(name), overrides.model_dump(exclude_none=True)).path)
