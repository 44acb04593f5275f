"""A flow run that is retried under the id of a dead process does not set itself Crashed."""

import sys

import pytest

pytestmark = pytest.mark.slow

RETRIED = """
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from tasks.dead_runs import crash_flow_runs


def state():
    with get_client(sync_client=True) as client:
        return client.read_flow_run(UUID(flow_run.get_id())).state.name


@flow
def retried():
    crash_flow_runs({flow_run.get_id(): "its process is gone", "no id": "neither"})
    print("state:", state())


retried()
"""


def test_a_retry_is_not_taken_for_the_process_that_died(server):
    done = server.run([sys.executable, "-c", RETRIED], {"PYTHONPATH": "."}, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "state: Running" in done.stdout
