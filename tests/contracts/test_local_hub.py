"""The local Hub against the real huggingface_hub client, over HTTP."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from support.hub import READ_TOKEN, WRITE_TOKEN, LocalHub, local_hub, start_hub

CONTENT = b'{"a": 1}\n'
LARGE = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHub]:
    with local_hub(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture
def hub(running: LocalHub) -> LocalHub:
    running.clear()
    return running


def api_of(hub: LocalHub, token: str = WRITE_TOKEN) -> HfApi:
    return HfApi(endpoint=hub.url, token=token)


def commit(api: HfApi, repo: str, files: dict[str, bytes], **options: str) -> str:
    operations = [CommitOperationAdd(path, content) for path, content in files.items()]
    return api.create_commit(repo, operations, commit_message="add files", **options).oid


def _slug(path: str) -> str:
    return hashlib.sha1(path.encode()).hexdigest()[:8]


def new_repo(hub: LocalHub, name: str, **options: object) -> tuple[HfApi, str]:
    api = api_of(hub)
    api.create_repo(f"team/{name}", **options)
    return api, f"team/{name}"


@pytest.mark.parametrize("repo_type", ["model", "dataset", "space"])
def test_what_is_committed_can_be_listed_and_downloaded(
    hub: LocalHub, tmp_path: Path, repo_type: str
) -> None:
    api, repo = new_repo(
        hub, f"round-{repo_type}", repo_type=repo_type,
        space_sdk="docker" if repo_type == "space" else None,
    )  # fmt: skip
    files = {"data/a.json": CONTENT, "w.safetensors": LARGE, "empty.txt": b""}
    oid = commit(api, repo, files, repo_type=repo_type)

    listed = api.list_repo_tree(repo, recursive=True, repo_type=repo_type)
    tree = {item.path: item for item in listed}
    assert set(tree) == {"data", *files}
    assert tree["w.safetensors"].lfs.sha256 == hashlib.sha256(LARGE).hexdigest()
    assert tree["data/a.json"].lfs is None
    blob = hashlib.sha1(b"blob %d\0" % len(CONTENT) + CONTENT).hexdigest()
    assert tree["data/a.json"].blob_id == blob
    top = {item.path for item in api.list_repo_tree(repo, repo_type=repo_type)}
    assert top == {"data", "w.safetensors", "empty.txt"}

    info = api.repo_info(repo, repo_type=repo_type)
    assert info.sha == oid
    for path, content in files.items():
        local = hf_hub_download(
            repo, path, repo_type=repo_type, endpoint=hub.url, token=WRITE_TOKEN,
            cache_dir=tmp_path,
        )  # fmt: skip
        assert Path(local).read_bytes() == content


def test_unchanged_files_make_no_commit_and_large_ones_travel_once(hub: LocalHub) -> None:
    api, repo = new_repo(hub, "twice")
    files = {"a.json": CONTENT, "w.safetensors": LARGE + b"twice"}
    first = commit(api, repo, files)
    second = commit(api, repo, files)
    assert first == second
    assert hub.commits(repo) == ["add files"]
    assert len(hub.requests("lfs_put")) == 1


def test_a_commit_deletes_and_earlier_revisions_stay_readable(hub: LocalHub) -> None:
    api, repo = new_repo(hub, "history")
    first = commit(api, repo, {"keep.json": CONTENT, "old/b.json": CONTENT, "old/c.json": CONTENT})
    api.create_commit(repo, [CommitOperationDelete("old/")], commit_message="drop old")
    assert set(hub.files(repo)) == {"keep.json"}
    assert set(api.list_repo_files(repo, revision=first)) == {
        "keep.json", "old/b.json", "old/c.json",
    }  # fmt: skip
    assert [item.title for item in api.list_repo_commits(repo)] == [
        "drop old", "add files", "initial commit",
    ]  # fmt: skip


def test_a_second_start_finds_what_was_published(tmp_path: Path) -> None:
    with local_hub(tmp_path) as hub:
        api, repo = new_repo(hub, "kept")
        commit(api, repo, {"a.json": CONTENT, "w.safetensors": LARGE})
        before = hub.files(repo)
    with local_hub(tmp_path) as hub:
        assert hub.files(repo) == before == {"a.json": CONTENT, "w.safetensors": LARGE}


def test_sigterm_ends_it_cleanly_and_takes_the_port_file_away(tmp_path: Path) -> None:
    hub = start_hub(tmp_path)
    assert (tmp_path / "port").exists()
    assert hub.stop() == 0
    assert not (tmp_path / "port").exists()


CHILD = """
import json, os, sys, urllib.request
request = urllib.request.Request(
    os.environ["HF_ENDPOINT"] + "/api/whoami-v2",
    headers={"Authorization": "Bearer " + os.environ["HF_TOKEN"]},
)
role = json.load(urllib.request.urlopen(request))["auth"]["accessToken"]["role"]
print(role, os.environ["HF_HUB_DISABLE_XET"])
sys.exit(7)
"""


def hub_around(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "subtext.local_hub", "--root", str(root), "--", *command],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_command_finds_the_hub_and_its_exit_code_is_passed_on(tmp_path: Path) -> None:
    done = hub_around(tmp_path / "my hub", sys.executable, "-c", CHILD)
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines()[0] == "write 1"
    assert f"subtext hub --root '{tmp_path}/my hub'" in done.stdout


def test_closing_line_leaves_out_the_default_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBTEXT_HOME", str(tmp_path))
    done = hub_around(tmp_path / ".local-hub", sys.executable, "-c", "")
    assert done.returncode == 0, done.stderr
    assert "`subtext hub` shows it again" in done.stdout


def test_a_command_that_is_missing_is_refused_without_traceback(tmp_path: Path) -> None:
    done = hub_around(tmp_path, "no-such-command")
    assert done.returncode == 2
    assert "no-such-command" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("port", [99999, -5, None], ids=["too high", "negative", "busy"])
def test_a_port_that_cannot_be_had_is_named(
    hub: LocalHub, tmp_path: Path, port: int | None
) -> None:
    port = port or int(hub.url.rpartition(":")[2])
    done = subprocess.run(
        [sys.executable, "-m", "subtext.cli", "hub", "--root", str(tmp_path), "--port", str(port)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert f"--port = {port}: " in done.stderr
    assert "0 for a free port" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_root_is_served_by_one_process(hub: LocalHub) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "subtext.local_hub", "--root", str(hub.root)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert second.returncode == 2
    assert "in use by another local Hub" in second.stderr


@pytest.mark.parametrize(
    ("token", "role"), [(WRITE_TOKEN, "write"), (READ_TOKEN, "read")], ids=["writer", "reader"]
)
def test_whoami_tells_the_role(hub: LocalHub, token: str, role: str) -> None:
    assert api_of(hub, token).whoami()["auth"]["accessToken"]["role"] == role


@pytest.mark.parametrize(
    ("token", "status"),
    [("", 401), ("wrong", 401), (READ_TOKEN, 403), (WRITE_TOKEN, 200)],
    ids=["no token", "unknown token", "token that only reads", "token that may write"],
)
def test_only_a_writer_may_create(hub: LocalHub, token: str, status: int) -> None:
    body = {"name": f"by-{status}-{token[:5]}", "organization": "team"}
    if status == 200:
        assert hub.call("POST", "/api/repos/create", body, token)["url"].startswith(hub.url)
        return
    with pytest.raises(urllib.error.HTTPError) as error:
        hub.call("POST", "/api/repos/create", body, token)
    assert error.value.code == status
    assert hub.requests("create") == [
        {"verb": "create", "repo": f"team/{body['name']}", "files": [], "status": status,
         "authorization": bool(token)}
    ]  # fmt: skip


def test_a_private_repository_is_hidden_without_a_token(hub: LocalHub) -> None:
    api, repo = new_repo(hub, "hidden", private=True)
    assert api.repo_info(repo).private is True
    with pytest.raises(RepositoryNotFoundError):
        HfApi(endpoint=hub.url, token=False).repo_info(repo)


def test_what_is_missing_is_named_as_the_hub_names_it(hub: LocalHub, tmp_path: Path) -> None:
    api, repo = new_repo(hub, "sparse")
    with pytest.raises(RepositoryNotFoundError):
        api.repo_info("team/absent")
    with pytest.raises(RevisionNotFoundError):
        api.repo_info(repo, revision="0" * 40)
    with pytest.raises(EntryNotFoundError):
        api.hf_hub_download(repo, "absent.json", cache_dir=tmp_path)
    with pytest.raises(EntryNotFoundError):
        list(api.list_repo_tree(repo, "absent"))


def test_a_stale_parent_is_refused(hub: LocalHub) -> None:
    api, repo = new_repo(hub, "raced")
    start = api.repo_info(repo).sha
    commit(api, repo, {"a.json": CONTENT})
    with pytest.raises(HfHubHTTPError) as error:
        commit(api, repo, {"b.json": CONTENT}, parent_commit=start)
    assert error.value.response.status_code == 412


def test_creating_twice_is_a_409_that_exist_ok_forgives(hub: LocalHub) -> None:
    api, repo = new_repo(hub, "again")
    assert api.create_repo(repo, exist_ok=True).repo_id == repo
    with pytest.raises(HfHubHTTPError) as error:
        api.create_repo(repo)
    assert error.value.response.status_code == 409


@pytest.mark.parametrize(
    "path",
    ["../up.json", "/abs.json", "a/../../b", "a//b", "./a", ".git/config", "a\\b", "", "a/.."],
)
def test_a_path_that_leaves_the_repository_is_refused(hub: LocalHub, path: str) -> None:
    hub.call("POST", "/api/repos/create", {"name": f"p{_slug(path)}", "organization": "paths"},
             WRITE_TOKEN)  # fmt: skip
    lines = [
        {"key": "header", "value": {"summary": "s", "description": ""}},
        {"key": "file", "value": {"path": path, "content": "YQ==", "encoding": "base64"}},
    ]
    request = urllib.request.Request(
        f"{hub.url}/api/models/paths/p{_slug(path)}/commit/main",
        "\n".join(map(json.dumps, lines)).encode(),
        {"Authorization": f"Bearer {WRITE_TOKEN}"},
    )
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=10)
    assert error.value.code == 400
    assert hub.commits(f"paths/p{_slug(path)}") == []


@pytest.mark.parametrize("name", ["..", "a..b", "-x", "a b", "%2e%2e"])
def test_a_repository_name_that_could_leave_the_root_is_refused(hub: LocalHub, name: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as error:
        hub.call("POST", "/api/repos/create", {"name": name, "organization": "team"}, WRITE_TOKEN)
    assert error.value.code == 400


def test_large_content_must_have_the_announced_hash(hub: LocalHub) -> None:
    _, repo = new_repo(hub, "forged")
    batch = hub.call(
        "POST", f"/{repo}.git/info/lfs/objects/batch",
        {"operation": "upload", "objects": [{"oid": "0" * 64, "size": 3}]}, WRITE_TOKEN,
    )  # fmt: skip
    put = urllib.request.Request(
        batch["objects"][0]["actions"]["upload"]["href"], b"abc", method="PUT"
    )
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(put, timeout=10)
    assert error.value.code == 422
    assert not list(hub.root.glob("blobs/.incoming-*"))


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("---\nlibrary_name: peft\nbase_model: a/b\n---\n# x\n", 200),
        ("---\nbase_model: /models/tiny\n---\n", 400),
        ("---\nbase_model: ./tiny\n---\n", 400),
        ("---\ntags: [a\n---\n", 400),
        ("---\n- a\n---\n", 400),
        ("# no header\n", 200),
    ],
    ids=["good", "absolute path", "relative path", "broken YAML", "no mapping", "only a warning"],
)
def test_model_card_headers_are_checked(hub: LocalHub, header: str, status: int) -> None:
    body = {"content": header, "repoType": "model"}
    if status == 200:
        answer = hub.call("POST", "/api/validate-yaml", body)
        assert answer["errors"] == []
        assert bool(answer["warnings"]) == header.startswith("#")
        return
    with pytest.raises(urllib.error.HTTPError) as error:
        hub.call("POST", "/api/validate-yaml", body)
    assert error.value.code == 400


def test_a_fault_strikes_its_count_its_verb_and_its_repository(hub: LocalHub) -> None:
    api, repo = new_repo(hub, "faulty")
    hub.fault("commit", repo="team/other", status=503)
    hub.fault("commit", repo=repo, status=503, count=2, retry_after=1)
    for _ in range(2):
        with pytest.raises(HfHubHTTPError) as error:
            commit(api, repo, {"a.json": CONTENT})
        assert error.value.response.status_code == 503
        assert error.value.response.headers["Retry-After"] == "1"
    commit(api, repo, {"a.json": CONTENT})
    assert [entry["status"] for entry in hub.requests("commit")] == [503, 503, 200]
    assert hub.requests("commit")[0]["files"] == ["a.json"]
    assert [fault["repo"] for fault in hub.call("GET", "/_faults")] == ["team/other"]


@pytest.mark.parametrize(
    ("drop", "landed"), [("before", []), ("after", ["add files"])], ids=["before", "after"]
)
def test_a_cut_connection_fails_the_client_whether_or_not_the_commit_landed(
    hub: LocalHub, drop: str, landed: list[str]
) -> None:
    import httpx2

    api, repo = new_repo(hub, f"cut-{drop}")
    hub.fault("commit", drop=drop)
    with pytest.raises(httpx2.RemoteProtocolError):
        commit(api, repo, {"a.json": CONTENT})
    assert hub.commits(repo) == landed


def test_half_an_answer_ends_before_its_announced_length(hub: LocalHub) -> None:
    import httpx2

    api, repo = new_repo(hub, "half")
    hub.fault("commit", truncate=True)
    with pytest.raises(httpx2.RemoteProtocolError):
        commit(api, repo, {"a.json": CONTENT})
    assert hub.commits(repo) == ["add files"]
    hub.fault("resolve", truncate=True)
    with pytest.raises(http.client.IncompleteRead) as error:
        hub.get(f"/{repo}/resolve/main/a.json")
    assert error.value.partial == CONTENT[: len(CONTENT) // 2]


def test_a_trickled_answer_is_whole_in_the_end(hub: LocalHub) -> None:
    api, repo = new_repo(hub, "slow")
    hub.fault("commit", trickle_s=0.001)
    commit(api, repo, {"a.json": CONTENT})
    hub.fault("resolve", trickle_s=0.1)
    started = time.monotonic()
    assert hub.get(f"/{repo}/resolve/main/a.json") == CONTENT
    assert time.monotonic() - started > 0.1 * (len(CONTENT) - 1)
    assert [entry["status"] for entry in hub.requests("commit")] == [200]


def test_a_fault_can_be_on_from_the_start(tmp_path: Path) -> None:
    with local_hub(tmp_path, "--fault", '{"verb": "whoami", "status": 429}') as hub:
        with pytest.raises(HfHubHTTPError) as error:
            api_of(hub).whoami()
        assert error.value.response.status_code == 429
        assert api_of(hub).whoami()["name"] == "local"


def test_a_browser_sees_repositories_files_and_commits_escaped(hub: LocalHub) -> None:
    api, repo = new_repo(hub, "seen")
    commit(api, repo, {"data/a&b <i>.json": CONTENT})
    assert f'href="/{repo}"' in hub.get("/").decode()
    page = hub.get(f"/{repo}").decode()
    assert f'href="/{repo}/resolve/main/data/a%26b%20%3Ci%3E.json"' in page
    assert "<i>" not in page
    assert "add files" in page
    assert hub.get(f"/{repo}/resolve/main/data/a%26b%20%3Ci%3E.json") == CONTENT


def test_no_request_record_or_page_holds_the_token(hub: LocalHub) -> None:
    api, repo = new_repo(hub, "quiet")
    commit(api, repo, {"a.json": CONTENT})
    shown = hub.get("/_requests") + hub.get("/") + hub.get(f"/{repo}")
    assert WRITE_TOKEN.encode() not in shown
    assert all(entry["authorization"] for entry in hub.requests("commit"))
