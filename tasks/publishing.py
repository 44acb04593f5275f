"""Uploads to the Hub: one task each, with its own retries. All are tried even when one fails."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State

from subtext.publishing import uploads
from subtext.publishing.access import check_access, require_token
from subtext.run_dir import RunDir, load_config
from tasks.retry import UPLOAD_DELAYS, UPLOAD_JITTER, UPLOAD_RETRIES, UPLOAD_TRY_S, can_retry
from tasks.secrets import environment_with_token


@task(name="check hub", cache_policy=NO_CACHE)
def check_hub(run_path: str) -> None:
    """Refuse within seconds an unfinished run, and a token that is missing or may not write."""
    run = RunDir(Path(run_path))
    uploads.check_finished(run)
    publish = load_config(run).publish
    check_access(publish, require_token(publish, environment_with_token()))


@task(name="write card", cache_policy=NO_CACHE)
def write_card(run_path: str) -> None:
    """Write the model card, which goes to MLflow and the Hub with the adapter."""
    uploads.write_card(RunDir(Path(run_path)))


@task(
    name="upload",
    task_run_name="upload-{name}",
    cache_policy=NO_CACHE,
    retries=UPLOAD_RETRIES,
    retry_delay_seconds=UPLOAD_DELAYS,
    retry_jitter_factor=UPLOAD_JITTER,
    retry_condition_fn=can_retry,
    timeout_seconds=UPLOAD_TRY_S,
)
def upload(run_path: str, name: str) -> dict[str, Any]:
    """Publish the adapter or one result file of a run; return where it landed."""
    run = RunDir(Path(run_path))
    publish = load_config(run).publish
    return uploads.upload(run, name, publish, require_token(publish, environment_with_token()))


def upload_missing(run_path: str) -> dict[str, State[Any]]:
    """Run every upload that the run asks for and that has not landed; return their final states.

    One after the other in the main thread: two commits to one repository at once would refuse
    each other, and Prefect's timeout cannot stop a worker thread that waits for the network.
    """
    run = RunDir(Path(run_path))
    names = uploads.missing_uploads(run, load_config(run).publish)
    return {name: upload(run_path, name, return_state=True) for name in names}


def require_all(run_path: str, states: Mapping[str, State[Any]]) -> None:
    """Raise UploadsError that names the uploads that failed, if any did."""
    failed = {name: state for name, state in states.items() if not state.is_completed()}
    if failed:
        repeat = f"python -m flows.publish_flow --run {shlex.quote(run_path)}"
        landed = "; the rest landed" if len(failed) < len(states) else ""
        reasons = [f"  - {name}: {state.message}" for name, state in failed.items()]
        raise uploads.UploadsError(
            f"{len(failed)} of {len(states)} uploads failed{landed}. Remove the cause and repeat "
            f"what is missing with `{repeat}`:\n" + "\n".join(reasons),
            run_path,
        )
