"""The name of a run that nobody named."""

from __future__ import annotations

from prefect.context import FlowRunContext


def default_run_id(profile: str) -> str:
    """Profile, UTC time and flow run: the same again when Prefect retries the flow run."""
    context = FlowRunContext.get()
    assert context is not None
    assert context.flow_run is not None
    created = context.flow_run.created
    assert created is not None
    return f"{profile}-{created:%Y%m%d-%H%M%S}-{str(context.flow_run.id)[:8]}"
