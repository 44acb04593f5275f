"""MLflow runs that a dead process of this machine left RUNNING are ended, with a tag that says why.

They become FAILED: nobody asked for their end, which is what KILLED stands for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from subtext.run_dir import RunDir, load_config
from subtext.tracking.processes import HOST, PID, STARTED, is_gone, this_process
from subtext.tracking.runs import ENDED_BECAUSE
from subtext.tracking.store import check_reachable, client, mlflow_errors, tracking_uri

logger = logging.getLogger(__name__)
_RUNNING = "RUNNING"


def end_dead_runs(run: RunDir) -> dict[str, str]:
    """End what dead processes of this host left RUNNING in the experiment of `run`.

    That may be an earlier process's MLflow run of `run` itself, which `start_run` then resumes.
    Returns why, by the id of the Prefect flow run. Raises MachineError or TrackingError.
    """
    uri, ended = tracking_uri(), {}
    check_reachable(uri)
    with mlflow_errors("end runs that a dead process left running"):
        store = client(uri)
        experiment = store.get_experiment_by_name(load_config(run).tracking.experiment)
        if experiment is None:
            return {}
        for found in list(_running_here(store, experiment.experiment_id)):
            if not is_gone(found.data.tags):
                continue
            run_id = found.info.run_id
            now = store.get_run(run_id)  # it may have ended, or been resumed, meanwhile
            if now.info.status != _RUNNING or not is_gone(now.data.tags):
                continue
            because = _because(now.data.tags, run.run_id)
            store.set_tag(run_id, ENDED_BECAUSE, because)
            store.set_terminated(run_id, status="FAILED")
            logger.warning("MLflow run %s: %s", now.info.run_name, because)
            ended[now.data.tags.get("flow_run_id", "")] = because
    return ended


def _running_here(store: Any, experiment_id: str) -> Iterator[Any]:
    host = this_process()[HOST].replace("'", "")
    wanted = f"attributes.status = '{_RUNNING}' and tags.{HOST} = '{host}'"
    token = None
    while True:
        page = store.search_runs([experiment_id], wanted, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _because(tags: Mapping[str, str], found_by: str) -> str:
    started = datetime.fromtimestamp(float(tags[STARTED]), UTC)
    return (
        f"Its process, pid {tags[PID]} on {tags[HOST]}, started {started:%Y-%m-%d %H:%M:%S} UTC, "
        f"is gone and ended it in no other way: killed, out of memory, or the machine went down. "
        f"Found at the start of {found_by}."
    )
