"""Publishing over real HTTP, with the real client, to a local Hub that fails on demand."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.finished_run import ADAPTER_FILES, BASE, finished_run
from support.hub import LocalHub

from subtext import strict_json
from subtext.config import PublishConfig
from subtext.errors import PublishError
from subtext.publishing.hub import (
    BASE_S,
    File,
    Target,
    commit_files,
    publish_adapter,
    publish_result,
)
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


def test_large_files_of_equal_content_arrive_in_one_commit(
    hub: LocalHub, publish: PublishConfig
) -> None:
    """As a run's adapter and warm adapter are where training changed nothing."""
    target = Target(publish.adapter_repo, "dataset", private=True)
    content = os.urandom(1_600_000)
    paths = [f"{name}/adapter_model.safetensors" for name in ("adapter", "warm", "third")]
    files = {path: File.of(content) for path in paths}
    landed = commit_files(target, files, "twins", hub.token, BASE_S)
    assert landed["committed"] is True
    there = hub.files(publish.adapter_repo, "datasets")
    assert {path: there[path] == content for path in paths} == dict.fromkeys(paths, True)
    assert hub.commits(publish.adapter_repo, "datasets") == ["twins"]


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
        for tries in itertools.count(1):
            try:
                publish_result(run, name, publish, hub.token)
                return
            except PublishError as error:
                # the other's commit came first
                if not error.retryable or "reads the new state" not in str(error) or tries > 3:
                    errors.append(error)
                    return

    threads = [
        threading.Thread(target=upload, args=(name,)) for name in ("trainer_state", "log_history")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(hub.files(publish.results_repo, "datasets")) == 3


# What huggingface_hub reads when it is imported: in a process of its own


@pytest.mark.parametrize(
    ("variables", "retryable", "words"),
    [
        ({"HF_HUB_OFFLINE": "1"}, False, "HF_HUB_OFFLINE"),
        ({"HF_HUB_DISABLE_XET": "0"}, None, ""),
    ],
    ids=["offline", "Xet storage, which the endpoint lacks, is not used"],
)
def test_modes_of_the_client(
    hub: LocalHub, run: RunDir, publish: PublishConfig, variables: dict[str, str],
    retryable: bool | None, words: str,
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
        "    print(None)\n"
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
