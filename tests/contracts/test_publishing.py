"""Publishing over real HTTP, with the real client, to a local Hub that fails on demand."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.finished_run import ADAPTER_FILES, BASE, failure, finished_run
from support.hub import LocalHub

from subtext import strict_json
from subtext.config import PublishConfig
from subtext.publishing import client
from subtext.publishing.hub import publish_adapter, publish_result
from subtext.run_dir import RunDir


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> RunDir:
    return finished_run(tmp_path / "runs" / "demo-7", request.node.name)


def adapter(run: RunDir, publish: PublishConfig, hub: LocalHub) -> dict[str, Any]:
    return publish_adapter(run, publish, hub.token)


def result(run: RunDir, publish: PublishConfig, hub: LocalHub) -> dict[str, Any]:
    return publish_result(run, "held_out_eval", publish, hub.token)


# What arrives


def test_the_adapter_arrives_whole_in_one_commit_and_nothing_else_does(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    landed = adapter(run, publish, hub)
    there = hub.files(publish.adapter_repo)
    assert set(there) == set(landed["files"]) == ADAPTER_FILES
    for name, content in there.items():
        source = run.model_card if name == "README.md" else run.adapter / name
        assert content == source.read_bytes()
        assert landed["files"][name] == hashlib.sha256(content).hexdigest()
    assert hub.commits(publish.adapter_repo) == ["Adapter of run demo-7"]
    assert landed["committed"] is True
    assert landed["repo_type"] == "model"
    head = hub.call("GET", f"/api/models/{publish.adapter_repo}", token=hub.token)["sha"]
    assert landed["revision"] == head
    assert publish.adapter_repo in hub.get(landed["url"].removeprefix(hub.url)).decode()


def test_the_weights_travel_as_a_large_file(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    adapter(run, publish, hub)
    assert [entry["status"] for entry in hub.requests("lfs_put")] == [200]
    tree = hub.call("GET", f"/api/models/{publish.adapter_repo}/tree/main", token=hub.token)
    large = {entry["path"] for entry in tree if "lfs" in entry}
    assert large == {"adapter_model.safetensors"}


def test_the_model_card_passes_the_hubs_check(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    from huggingface_hub import ModelCard

    card = ModelCard(run.model_card.read_text())
    assert card.data.base_model == BASE["name"]
    adapter(run, publish, hub)
    assert [entry["status"] for entry in hub.requests("validate_yaml")] == [200]


@pytest.mark.parametrize(("kind", "prefix"), [("space", "spaces"), ("dataset", "datasets")])
def test_each_result_has_its_own_path_and_commit(
    hub: LocalHub, run: RunDir, publish: PublishConfig, kind: str, prefix: str
) -> None:
    publish = publish.model_copy(update={"results_repo_type": kind})
    for name in ("trainer_state", "log_history", "held_out_eval"):
        landed = publish_result(run, name, publish, hub.token)
        assert list(landed["files"]) == [f"data/{name}_demo-7.json"]
        assert landed["repo_type"] == kind
    assert hub.files(publish.results_repo, prefix) == {
        "data/trainer_state_demo-7.json": run.trainer_state.read_bytes(),
        "data/log_history_demo-7.json": run.log_history.read_bytes(),
        "data/held_out_eval_demo-7.json": run.held_out_eval.read_bytes(),
    }
    assert len(hub.commits(publish.results_repo, prefix)) == 3


def test_equal_bytes_make_no_commit_and_changed_ones_make_one(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    first = adapter(run, publish, hub)
    hub.clear()
    again = adapter(run, publish, hub)
    assert again == {**first, "committed": False}
    assert hub.requests("preupload") == hub.requests("commit") == []

    strict_json.write(run.adapter / "tokenizer_config.json", {"name": "another"})
    changed = adapter(run, publish, hub)
    assert changed["revision"] != first["revision"]
    assert [entry["files"] for entry in hub.requests("commit")] == [["tokenizer_config.json"]]
    assert len(hub.commits(publish.adapter_repo)) == 2


def test_missing_repositories_are_made_as_private_as_configured(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    result(run, publish.model_copy(update={"private": True}), hub)
    info = hub.call("GET", f"/api/datasets/{publish.results_repo}", token=hub.token)
    assert info["private"] is True


def test_uploads_at_the_same_time_all_arrive(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    result(run, publish, hub)
    errors: list[BaseException] = []

    def upload(name: Any) -> None:
        try:
            publish_result(run, name, publish, hub.token)
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=upload, args=(name,)) for name in ("trainer_state", "log_history")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(hub.files(publish.results_repo, "datasets")) == 3


# What goes wrong


@pytest.mark.parametrize(
    ("verb", "status", "retryable", "words"),
    [
        ("commit", 503, True, "try again later"),
        ("commit", 500, True, "try again later"),
        ("commit", 408, True, "try again later"),
        ("commit", 409, True, "Another operation is under way"),
        ("commit", 412, True, "reads the new state first"),
        ("commit", 429, True, "rate limit"),
        ("commit", 400, False, "Trying again is no use"),
        ("commit", 401, False, "HF_TOKEN"),
        ("commit", 403, False, "write access"),
        ("commit", 404, False, "check the name"),
        ("commit", 413, False, "too large"),
        ("commit", 422, False, "Trying again is no use"),
        ("info", 502, True, "try again later"),
        ("info", 401, False, "HF_TOKEN"),
        ("create", 503, True, "try again later"),
        ("create", 403, False, "write access"),
    ],
)
def test_a_status_says_whether_another_try_can_help(
    hub: LocalHub, run: RunDir, publish: PublishConfig, verb: str, status: int, retryable: bool,
    words: str,
) -> None:  # fmt: skip
    hub.fault(verb, status=status)
    error = failure(lambda: result(run, publish, hub))
    assert error.retryable is retryable
    assert words in str(error)
    assert publish.results_repo in str(error)
    assert "data/held_out_eval_demo-7.json" in str(error)
    assert hub.token not in str(error)
    if retryable:
        assert result(run, publish, hub)["committed"] is True
        assert len(hub.commits(publish.results_repo, "datasets")) == 1


@pytest.mark.parametrize("verb", ["commit", "create", "info"])
def test_a_connection_cut_before_the_work_is_retryable(
    hub: LocalHub, run: RunDir, publish: PublishConfig, verb: str
) -> None:
    hub.fault(verb, drop="before")
    error = failure(lambda: result(run, publish, hub))
    assert error.retryable
    assert "HF_ENDPOINT" in str(error)
    assert result(run, publish, hub)["committed"] is True


def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    hub.fault("commit", drop="after")
    assert failure(lambda: adapter(run, publish, hub)).retryable
    again = adapter(run, publish, hub)
    assert again["committed"] is False
    assert set(again["files"]) == ADAPTER_FILES
    assert len(hub.commits(publish.adapter_repo)) == 1


def test_a_repository_whose_making_was_not_confirmed_is_found_by_the_next_try(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    hub.fault("create", drop="after")
    assert failure(lambda: result(run, publish, hub)).retryable
    assert result(run, publish, hub)["committed"] is True


@pytest.mark.parametrize(
    "body",
    [
        "Cannot create repo: another conflicting operation is in progress",
        {"error": "You already created this repo"},
    ],
    ids=["busy: the client alone would ask for ever", "no url: the client raises KeyError"],
)
def test_a_conflict_while_creating_ends_soon_and_is_retryable(
    hub: LocalHub, run: RunDir, publish: PublishConfig, body: Any
) -> None:
    hub.fault("create", status=409, body=body, count=1000)
    started = time.monotonic()
    assert failure(lambda: result(run, publish, hub)).retryable
    assert time.monotonic() - started < 5
    assert len(hub.requests("create")) == 1


def test_a_refused_model_card_is_final(hub: LocalHub, run: RunDir, publish: PublishConfig) -> None:
    run.model_card.write_text("---\nbase_model: ./tiny\n---\n# Card\n")
    error = failure(lambda: adapter(run, publish, hub))
    assert not error.retryable
    assert "base_model" in str(error)
    assert hub.commits(publish.adapter_repo) == []


def test_a_gateways_page_instead_of_json_is_retryable(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    hub.fault("validate_yaml", status=502, body="<html>Bad Gateway</html>")
    assert failure(lambda: adapter(run, publish, hub)).retryable
    assert adapter(run, publish, hub)["committed"] is True


def test_a_short_trouble_with_the_large_file_is_overcome_by_the_client(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    hub.fault("lfs_put", status=503)
    assert adapter(run, publish, hub)["committed"] is True
    assert [entry["status"] for entry in hub.requests("lfs_put")] == [503, 200]


def test_a_long_wait_asked_for_is_left_to_the_caller(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    hub.fault("preupload", status=429, retry_after=3600, count=10)
    started = time.monotonic()
    error = failure(lambda: result(run, publish, hub))
    assert time.monotonic() - started < 5
    assert error.retryable
    assert "rate limit" in str(error)
    assert len(hub.requests("preupload")) == 1


@pytest.mark.parametrize("verb", ["info", "tree", "commit"])
def test_a_server_that_falls_silent_is_given_up(
    hub: LocalHub, run: RunDir, publish: PublishConfig, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result(run, publish, hub)
    strict_json.write(run.held_out_eval, {"accuracy": 0.6})
    monkeypatch.setattr("subtext.publishing.hub._BASE_S", 1.0)
    hub.fault(verb, delay_s=8, count=4)
    started = time.monotonic()
    assert failure(lambda: result(run, publish, hub)).retryable
    assert time.monotonic() - started < 4


def test_limits_end_with_the_upload(hub: LocalHub, run: RunDir, publish: PublishConfig) -> None:
    result(run, publish, hub)
    failure(lambda: result(run, publish.model_copy(update={"results_repo": ""}), hub))
    assert client._seconds_left() is None


def test_a_server_that_is_not_there_is_retryable(
    run: RunDir, publish: PublishConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    error = failure(lambda: publish_result(run, "log_history", publish, "local"))
    assert error.retryable
    assert "http://127.0.0.1:9" in str(error)


def test_an_endpoint_that_is_no_url_is_final(
    run: RunDir, publish: PublishConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "huggingface.co")
    error = failure(lambda: publish_result(run, "log_history", publish, "local"))
    assert not error.retryable
    assert "HF_ENDPOINT" in str(error)


@pytest.mark.parametrize("entry", [{"size": 1}, {"oid": "0" * 40}], ids=["size", "hash"])
def test_what_landed_otherwise_than_sent_is_found(
    run: RunDir, publish: PublishConfig, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any]
) -> None:
    content = run.log_history.read_bytes()
    right = {
        "type": "file", "path": "data/log_history_demo-7.json", "size": len(content),
        "oid": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
    }  # fmt: skip
    for landed, fits in (({**right, **entry}, False), (right, True)):
        with ForgetfulHub(landed) as url:
            monkeypatch.setenv("HF_ENDPOINT", url)
            if fits:
                publish_result(run, "log_history", publish, "local")
                continue
            error = failure(lambda: publish_result(run, "log_history", publish, "local"))
            assert error.retryable
            assert "data/log_history_demo-7.json" in str(error)


# What huggingface_hub reads when it is imported: in a process of its own


@pytest.mark.parametrize(
    ("variables", "retryable", "words"),
    [
        ({"HF_HUB_OFFLINE": "1"}, False, "HF_HUB_OFFLINE"),
        ({"HF_HUB_DISABLE_XET": "0"}, True, "HF_HUB_DISABLE_XET=1"),
    ],
    ids=["offline", "Xet storage that the endpoint lacks"],
)
def test_modes_of_the_client_are_explained(
    hub: LocalHub, run: RunDir, publish: PublishConfig, variables: dict[str, str], retryable: bool,
    words: str,
) -> None:  # fmt: skip
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from subtext.config import PublishConfig\n"
        "from subtext.errors import PublishError\n"
        "from subtext.publishing.hub import publish_adapter\n"
        "from subtext.run_dir import RunDir\n"
        "try:\n"
        "    publish_adapter(RunDir(Path(sys.argv[1])), "
        "PublishConfig(adapter_repo=sys.argv[2]), sys.argv[3])\n"
        "except PublishError as error:\n"
        "    print(error.retryable, error)\n"
    )
    checkout = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(run.path), publish.adapter_repo, hub.token],
        env={**os.environ, **hub.environment, **variables, "PYTHONPATH": str(checkout)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.startswith(str(retryable)), done.stderr
    assert words in done.stdout


class ForgetfulHub:
    """A Hub that knows an empty repository, takes any commit, and then lists `entry`."""

    def __init__(self, entry: dict[str, Any]) -> None:
        state = {"tree": []}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(
                    state["tree"] if "/tree/" in self.path else {"id": "a/b", "sha": "1" * 40}
                )

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path.endswith("/preupload/main"):
                    files = [
                        {"path": item["path"], "uploadMode": "regular", "shouldIgnore": False}
                        for item in json.loads(body)["files"]
                    ]
                    self._answer({"files": files})
                else:
                    state["tree"] = [entry]
                    url = f"http://{self.headers['Host']}/datasets/a/b/commit/{'2' * 40}"
                    self._answer({"commitUrl": url, "commitOid": "2" * 40})

            def _answer(self, value: Any) -> None:
                content = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
