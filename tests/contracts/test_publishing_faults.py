"""Publishing to a local Hub in trouble: what is worth another try, what lands, what is said."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.finished_run import ADAPTER_FILES, SECRET, failure, finished_run
from support.hub import LocalHub, trickling_server

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


@pytest.mark.parametrize(
    ("verb", "status"), [("preupload", 429), ("commit", 429), ("commit", 503), ("tree", 429)]
)
def test_a_short_wait_asked_for_is_kept(
    hub: LocalHub, run: RunDir, publish: PublishConfig, verb: str, status: int
) -> None:
    hub.fault(verb, status=status, retry_after=1)
    started = time.monotonic()
    assert result(run, publish, hub)["committed"] is True
    assert time.monotonic() - started >= 1
    assert len(hub.commits(publish.results_repo, "datasets")) == 1


@pytest.mark.parametrize(
    ("verb", "status"), [("preupload", 429), ("commit", 429), ("commit", 503), ("info", 503)]
)
def test_an_hour_asked_for_is_final_and_said(
    hub: LocalHub, run: RunDir, publish: PublishConfig, verb: str, status: int
) -> None:
    hub.fault(verb, status=status, retry_after=3600, count=10)
    error = failure(lambda: result(run, publish, hub))
    assert not error.retryable
    assert "asks to wait 3600 s" in str(error)
    assert "repeat the upload after that" in str(error)
    assert len(hub.requests(verb)) == 1


@pytest.mark.parametrize("verb", ["info", "tree", "commit"])
@pytest.mark.parametrize("fault", [{"delay_s": 8}, {"trickle_s": 0.5}], ids=["silent", "trickle"])
def test_a_server_that_hangs_is_given_up(
    hub: LocalHub, run: RunDir, publish: PublishConfig, verb: str, fault: dict[str, float]
) -> None:
    result(run, publish, hub)
    strict_json.write(run.held_out_eval, {"accuracy": 0.6})
    hub.fault(verb, count=4, **fault)
    started = time.monotonic()
    error = failure(lambda: publish_result(run, "held_out_eval", publish, hub.token, base_s=1))
    assert error.retryable
    assert "longer than 1 s" in str(error)
    assert time.monotonic() - started < 4


@pytest.mark.parametrize("part", ["header", "body"])
def test_a_server_that_trickles_for_ever_is_given_up(
    run: RunDir, publish: PublishConfig, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trickling_server(part) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        error = failure(lambda: publish_result(run, "log_history", publish, "local", base_s=1))
    assert error.retryable
    assert "longer than 1 s" in str(error)
    assert url in str(error)


@pytest.mark.parametrize(
    ("verb", "overcome"),
    [("tree", True), ("preupload", True), ("lfs_batch", True), ("info", False), ("commit", False)],
)
def test_half_an_answer_makes_no_second_commit(
    hub: LocalHub, run: RunDir, publish: PublishConfig, verb: str, overcome: bool
) -> None:
    owner, name = publish.adapter_repo.split("/")
    hub.call("POST", "/api/repos/create", {"name": name, "organization": owner}, hub.token)
    hub.fault(verb, truncate=True)
    if overcome:  # the client itself asks again
        assert adapter(run, publish, hub)["committed"] is True
    else:
        assert failure(lambda: adapter(run, publish, hub)).retryable
        adapter(run, publish, hub)
    assert len(hub.commits(publish.adapter_repo)) == 1
    assert set(hub.files(publish.adapter_repo)) == ADAPTER_FILES


def test_a_commit_that_lands_late_is_not_made_twice(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    result(run, publish, hub)
    strict_json.write(run.held_out_eval, {"accuracy": 0.6})
    hub.fault("commit", delay_s=2)
    late = failure(lambda: publish_result(run, "held_out_eval", publish, hub.token, base_s=1))
    assert late.retryable
    hub.fault("commit", delay_s=2)
    overtaken = failure(lambda: result(run, publish, hub))  # read the head before the first landed
    assert overtaken.retryable
    assert "reads the new state" in str(overtaken)
    assert result(run, publish, hub)["committed"] is False
    assert len(hub.commits(publish.results_repo, "datasets")) == 2


def test_a_token_that_the_server_repeats_is_not_shown(
    hub: LocalHub, run: RunDir, publish: PublishConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", hub.token)
    said = f"bad request with Authorization: Bearer {SECRET} and {hub.token}"
    hub.fault("commit", status=400, body={"error": said})
    error = failure(lambda: result(run, publish, hub))
    shown = "".join(traceback.format_exception(error))
    assert "bad request with Authorization: Bearer ***" in shown
    assert SECRET not in shown
    assert hub.token not in shown


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
