"""Tell Prefect that a process is gone which could not say so itself."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Crashed


def crash_flow_runs(ended: Mapping[str, str]) -> None:
    """Set the flow runs of `ended` (why, by id) Crashed, where this API has them still running.

    But for the current one: a retry has the id under which an earlier process died. Never raises
    because of the API: that they look alive ends no other run.
    """
    for flow_run_id, because in ended.items():
        if flow_run_id == flow_run.get_id():
            continue
        try:
            _crash(UUID(flow_run_id), because)
        except (ValueError, ObjectNotFound):
            continue  # of no flow run, or of another server's
        except Exception as error:
            get_run_logger().warning("Flow run %s stays as it is: %r", flow_run_id, error)


def _crash(flow_run_id: UUID, because: str) -> None:
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(flow_run_id).state
        if state is not None and not state.is_final():
            client.set_flow_run_state(flow_run_id, Crashed(message=because), force=True)
