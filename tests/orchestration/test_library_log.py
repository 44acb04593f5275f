"""What the library logs inside a task stands in the flow run's log, once."""

import json
import logging
import sys
import time
import urllib.request

import pytest
import yaml
from prefect.logging import disable_run_logger
from support.prefect_server import CHECKOUT

from tasks.library_log import library_log

FLOW = """
import logging
from prefect import flow, task
from prefect.runtime import flow_run
from tasks.library_log import library_log

logger = logging.getLogger("subtext.x")

@task
def step():
    with library_log():
        logger.debug("chatter")
        logger.info("%d clips", 3)
    logger.info("outside")

@flow
def work():
    step()
    print(flow_run.get_id())

work()
"""


def messages(server, flow_run_id: str) -> list[str]:
    body = {"logs": {"flow_run_id": {"any_": [flow_run_id]}}, "limit": 100}
    request = urllib.request.Request(
        f"{server.url}/logs/filter", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return [entry["message"] for entry in json.load(answer)]


@pytest.mark.slow
def test_an_info_record_reaches_the_flow_runs_log_once(server):
    # as a deployed run is started: these loggers get Prefect's own handler
    job = yaml.safe_load((CHECKOUT / "prefect.yaml").read_text("utf-8"))["definitions"]
    env = job["job_variables"]["env"]
    result = server.run([sys.executable, "-c", FLOW], env, 120)
    assert result.returncode == 0, result.stderr
    deadline = time.monotonic() + 20
    found: list[str] = []
    while not any("Finished" in text for text in found) and time.monotonic() < deadline:
        time.sleep(0.2)
        found = messages(server, result.stdout.split()[-1])
    assert found.count("3 clips") == 1, found
    assert not {"chatter", "outside"} & set(found)


@pytest.mark.parametrize("level", [logging.NOTSET, logging.ERROR], ids=["default", "set by others"])
def test_the_logger_is_as_before_afterwards(level):
    logger = logging.getLogger("subtext")
    before = logger.level, logger.handlers[:], logger.propagate
    logger.setLevel(level)
    try:
        with disable_run_logger(), pytest.raises(ValueError, match="inside"), library_log():
            assert logger.isEnabledFor(logging.INFO)
            assert not logger.propagate
            raise ValueError("inside")
        assert (logger.level, logger.handlers, logger.propagate) == (level, *before[1:])
    finally:
        logger.setLevel(before[0])
