"""Uploads as tasks of a flow, against a Hub in trouble: what is tried again, what lands, what is
said; and that a repeat completes the rest without a second commit of anything."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest
from prefect import flow
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_HOME,
    PREFECT_LOGGING_TO_API_ENABLED,
    temporary_settings,
)
from support.finished_run import finished_run, repositories
from support.hub import LocalHub, local_hub, start_hub

from subtext import strict_json
from subtext.config import PublishConfig
from subtext.publishing.uploads import UploadsError, missing_uploads
from subtext.run_dir import RunDir, load_config
from tasks.publishing import require_all, upload

TITLES = {
    "models": ["Adapter of run demo-7"],
    "datasets": [f"{name} of run demo-7" for name in ("held_out_eval", "log_history",
                                                      "trainer_state")],
}  # fmt: skip
FIRST = "data/trainer_state_demo-7.json"
BUSY = "Cannot commit: another conflicting operation is in progress"
LANDED = [200, 200, 200]

pytestmark = pytest.mark.slow

quick = upload.with_options(retry_delay_seconds=0)
patient = upload.with_options(retry_delay_seconds=[1, 2, 4, 8])

HANGING = """
import sys
from prefect import flow
from tasks.publishing import upload

@flow
def uploads(run_path):
    return upload.with_options(timeout_seconds=3, retry_delay_seconds=0)(run_path, "trainer_state")

uploads(sys.argv[1])
"""


@flow(name="uploads")
def uploads(run_path: str, is_patient: bool = False) -> None:
    run, task = RunDir(Path(run_path)), patient if is_patient else quick
    names = missing_uploads(run, load_config(run).publish)
    require_all(run_path, {name: task(run_path, name, return_state=True) for name in names})


@pytest.fixture(scope="module", autouse=True)
def api(server, tmp_path_factory):
    home = tmp_path_factory.mktemp("prefect-home")
    settings = {
        PREFECT_API_URL: server.url, PREFECT_HOME: home, PREFECT_LOGGING_TO_API_ENABLED: False,
    }  # fmt: skip
    with temporary_settings(settings):
        yield


@pytest.fixture
def publish(request: pytest.FixtureRequest) -> PublishConfig:
    return repositories(request.node.name)


@pytest.fixture
def run(tmp_path: Path, publish: PublishConfig, request: pytest.FixtureRequest) -> RunDir:
    run = finished_run(tmp_path / "demo-7", request.node.name)
    recorded = strict_json.read(run.config)
    recorded["config"]["publish"] = publish.model_dump(mode="json")
    strict_json.write(run.config, recorded)
    return run


@pytest.fixture
def environment(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in hub.environment.items():
        monkeypatch.setenv(name, value)


def statuses(hub: LocalHub, verb: str, repo: str) -> list[int | None]:
    return [entry.get("status") for entry in hub.requests(verb) if entry["repo"] == repo]


def check_landed_once(hub: LocalHub, run: RunDir, publish: PublishConfig) -> None:
    """Everything is there, and no commit was made twice."""
    assert set(strict_json.read(run.published)) == {
        "adapter", "trainer_state", "log_history", "held_out_eval",
    }  # fmt: skip
    assert hub.commits(publish.adapter_repo) == TITLES["models"]
    assert sorted(hub.commits(publish.results_repo, "datasets")) == TITLES["datasets"]
    there = hub.files(publish.results_repo, "datasets")
    assert there[FIRST] == run.trainer_state.read_bytes()


# Trouble that passes: the first result meets it, the tries of its task overcome it.


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("fault", "commits", "tries"),
    [
        pytest.param({"status": 503, "count": 2}, [503, 503, *LANDED], 3, id="503 twice"),
        pytest.param({"status": 503, "retry_after": 1}, [503, *LANDED], 1, id="503, asks to wait"),
        pytest.param({"status": 429, "retry_after": 1}, [429, *LANDED], 1, id="429, asks to wait"),
        pytest.param({"status": 429}, [429, *LANDED], 2, id="429"),
        pytest.param({"status": 412}, [412, *LANDED], 2, id="412"),
        pytest.param({"status": 409, "body": BUSY}, [409, *LANDED], 2, id="409 busy"),
        pytest.param({"status": 409}, [409, *LANDED], 2, id="409"),
        pytest.param({"drop": "before"}, [0, *LANDED], 2, id="cut before the commit"),
        pytest.param({"drop": "after"}, [0, 200, 200], 2, id="cut after the commit"),
        pytest.param({"truncate": True}, LANDED, 2, id="half an answer"),
        pytest.param({"trickle_s": 0.01}, LANDED, 1, id="slow answer"),
    ],
)
def test_what_passes_is_overcome(hub, run, publish, fault, commits, tries):
    hub.fault("commit", repo=publish.results_repo, **fault)
    uploads(str(run.path))
    assert statuses(hub, "commit", publish.results_repo) == commits
    # each try reads the head once; the first one, which makes the repository, twice more
    waits = 1 if "retry_after" in fault else 0
    assert len(statuses(hub, "info", publish.results_repo)) == 2 + 1 + tries + waits
    check_landed_once(hub, run, publish)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    "body",
    [{"error": "You already created this repo"}, "another conflicting operation is in progress"],
    ids=["no url", "busy"],
)
def test_a_conflict_while_creating_is_overcome(hub, run, publish, body):
    hub.fault("create", repo=publish.results_repo, status=409, body=body)
    uploads(str(run.path))
    assert statuses(hub, "create", publish.results_repo) == [409, 200]
    check_landed_once(hub, run, publish)


@pytest.mark.usefixtures("environment")
def test_a_repository_that_somebody_else_makes_meanwhile_is_taken(hub, run, publish):
    owner, name = publish.results_repo.split("/")
    hub.fault("create", repo=publish.results_repo, delay_s=1)

    def make_it_first() -> None:
        while not any(
            entry.get("repo") == publish.results_repo for entry in hub.requests("create")
        ):
            time.sleep(0.05)
        body = {"name": name, "organization": owner, "type": "dataset"}
        hub.call("POST", "/api/repos/create", body, hub.token)

    rival = threading.Thread(target=make_it_first)
    rival.start()
    uploads(str(run.path))
    rival.join()
    assert statuses(hub, "create", publish.results_repo) == [409, 200]
    assert statuses(hub, "commit", publish.results_repo) == LANDED
    check_landed_once(hub, run, publish)


def test_a_try_that_hangs_is_ended_by_prefect_and_repeated(server, hub, run, publish):
    # In a process of its own: Prefect ends a task by SIGALRM, which pytest's own timeout takes.
    hub.fault("commit", repo=publish.results_repo, delay_s=8)
    result = server.run([sys.executable, "-c", HANGING, str(run.path)], hub.environment, 120)
    assert result.returncode == 0, result.stderr
    assert "timed out after 3" in result.stderr
    titles = hub.commits(publish.results_repo, "datasets")
    assert titles == ["trainer_state of run demo-7"]
    deadline = time.monotonic() + 30
    while None in (found := statuses(hub, "commit", publish.results_repo)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert found == [412, 200], "the first commit, which the Hub takes up last, comes too late"
    assert hub.commits(publish.results_repo, "datasets") == titles


def test_a_hub_that_is_away_and_comes_back_gets_everything(run, publish, tmp_path, monkeypatch):
    with local_hub(tmp_path / "first") as hub:
        for name, value in hub.environment.items():
            monkeypatch.setenv(name, value)
    again: list[LocalHub] = []

    def come_back() -> None:
        time.sleep(4)
        again.append(start_hub(tmp_path / "first", "--port", hub.url.rpartition(":")[2]))

    returning = threading.Thread(target=come_back)
    returning.start()
    try:
        uploads(str(run.path), is_patient=True)
        returning.join()
        check_landed_once(again[0], run, publish)
    finally:
        returning.join()
        again[0].stop()


# Trouble that stays: one POST, the others land, a repeat completes the rest.


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param({"status": 403}, "use a token with write access", id="403"),
        pytest.param(
            {"status": 429, "retry_after": 3600}, "asks to wait 3600 s", id="429, wait an hour"
        ),
        pytest.param(
            {"status": 503, "retry_after": 3600}, "asks to wait 3600 s", id="503, wait an hour"
        ),
    ],
)
def test_what_stays_in_one_repository_is_named_and_the_rest_lands(hub, run, publish, fault, said):
    hub.fault("commit", repo=publish.adapter_repo, **fault)
    with pytest.raises(UploadsError) as error:
        uploads(str(run.path))
    assert statuses(hub, "commit", publish.adapter_repo) == [fault["status"]]
    assert statuses(hub, "commit", publish.results_repo) == LANDED
    assert "1 of 4 uploads failed; the rest landed" in str(error.value)
    assert f"model {publish.adapter_repo}" in str(error.value)
    assert "adapter_model.safetensors" in str(error.value)
    assert said in str(error.value)
    uploads(str(run.path))
    check_landed_once(hub, run, publish)


@pytest.mark.usefixtures("environment")
def test_a_token_revoked_between_head_and_commit_is_named(hub, run, publish):
    hub.fault("commit", status=401, body={"error": "Invalid credentials"}, count=4)
    with pytest.raises(UploadsError) as error:
        uploads(str(run.path))
    refused = [entry["status"] for entry in hub.requests("commit")]
    assert refused == [401, 401, 401, 401], "once each: another try with the same token is no use"
    assert "4 of 4 uploads failed" in str(error.value)
    for place in (f"model {publish.adapter_repo}", f"dataset {publish.results_repo}", FIRST):
        assert place in str(error.value)
    assert "set HF_TOKEN to a token that may write there" in str(error.value)
    uploads(str(run.path))
    check_landed_once(hub, run, publish)
