"""Questions to a Prefect server by HTTP, as its UI asks them."""

from __future__ import annotations

import time
from typing import Any

import httpx
from support.prefect_server import PrefectServer

_ANSWER_S = 30
_FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def call(server: PrefectServer, method: str, path: str, body: Any = None) -> Any:
    """The JSON that the server answers, None where it has nothing to say. Raises
    httpx.HTTPStatusError."""
    answer = httpx.request(method, f"{server.url}{path}", json=body, timeout=_ANSWER_S)
    answer.raise_for_status()
    return answer.json() if answer.content else None


def start_run(server: PrefectServer, deployment: str, parameters: dict[str, Any]) -> str:
    """Schedule a run of `flow/deployment` for now; return its id."""
    deployment_id = call(server, "GET", f"/deployments/name/{deployment}")["id"]
    body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
    run = call(server, "POST", f"/deployments/{deployment_id}/create_flow_run", body)
    return str(run["id"])


def state_of(server: PrefectServer, run_id: str) -> dict[str, Any]:
    """The state of a flow run: its `type`, `name` and `message`."""
    state: dict[str, Any] = call(server, "GET", f"/flow_runs/{run_id}")["state"]
    return state


def wait_for_state(server: PrefectServer, run_id: str, name: str, seconds: float) -> dict[str, Any]:
    """Wait until the state of a flow run has this name; fail at once when it ends in another."""
    deadline = time.monotonic() + seconds
    while (state := state_of(server, run_id))["name"] != name:
        assert state["type"] not in _FINAL, f"not {name}: {state}"
        assert time.monotonic() < deadline, f"not {name} after {seconds} s: {state}"
        time.sleep(0.5)
    return state
