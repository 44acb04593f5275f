"""What is refused before anything is sent: tokens in files, unfinished runs, bad access."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.finished_run import SECRET, failure, finished_run
from support.hub import LocalHub

from subtext import strict_json
from subtext.config import PublishConfig
from subtext.errors import MachineError
from subtext.publishing.hub import check_access, publish_adapter, publish_result, require_token
from subtext.run_dir import RunDir


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> RunDir:
    return finished_run(tmp_path / "runs" / "demo-7", request.node.name)


def adapter(run: RunDir, publish: PublishConfig, hub: LocalHub) -> dict[str, Any]:
    return publish_adapter(run, publish, hub.token)


def result(run: RunDir, publish: PublishConfig, hub: LocalHub) -> dict[str, Any]:
    return publish_result(run, "held_out_eval", publish, hub.token)


@pytest.mark.parametrize("place", ["adapter/tokenizer_config.json", "README.md"])
def test_a_token_in_a_file_blocks_the_upload(
    hub: LocalHub, run: RunDir, publish: PublishConfig, place: str
) -> None:
    (run.path / place).write_text(json.dumps({"token": SECRET}))
    error = failure(lambda: adapter(run, publish, hub))
    assert not error.retryable
    assert place in str(error)
    assert SECRET not in str(error)
    assert hub.requests() == []


def test_the_very_token_in_use_blocks_the_upload_whatever_its_shape(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    strict_json.write(run.held_out_eval, {"note": f"with {hub.token}"})
    assert not failure(lambda: result(run, publish, hub)).retryable
    assert hub.requests() == []


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("Qwen/Qwen2.5-3B-Instruct", True),
        ("tiny-policy", True),
        (None, True),
        ("/srv/models/tiny", False),
        ("./tiny", False),
        ("../tiny", False),
        ("~/models/tiny", False),
        ("models/qwen/3b", False),
        ("C:\\models\\tiny", False),
        ("subtext/profiles", False),
    ],
    ids=["Hub id", "bare name", "null", "absolute", "dot", "up", "home", "deep", "Windows",
         "a folder that exists"],
)  # fmt: skip
def test_an_adapter_must_not_name_a_folder_of_this_machine(
    hub: LocalHub, run: RunDir, publish: PublishConfig, name: str | None, allowed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    strict_json.write(run.adapter / "adapter_config.json", {"base_model_name_or_path": name})
    if allowed:
        assert adapter(run, publish, hub)["committed"] is True
        return
    error = failure(lambda: adapter(run, publish, hub))
    assert not error.retryable
    assert "base_model_name_or_path" in str(error)
    assert hub.requests() == []


@pytest.mark.parametrize(
    "missing", ["adapter/adapter_model.safetensors", "adapter/subtext.json", "README.md"]
)
def test_an_unfinished_run_is_not_published(
    hub: LocalHub, run: RunDir, publish: PublishConfig, missing: str
) -> None:
    (run.path / missing).unlink()
    error = failure(lambda: adapter(run, publish, hub))
    assert not error.retryable
    assert missing in str(error)
    assert hub.requests() == []


# Before training


def test_a_good_token_passes_the_preflight(hub: LocalHub, publish: PublishConfig) -> None:
    check_access(publish, hub.token)
    assert [entry["verb"] for entry in hub.requests()] == ["whoami"]


@pytest.mark.parametrize("token", ["mistyped-token", "reader", "", None])
def test_a_token_that_cannot_publish_is_refused_before_training(
    hub: LocalHub, publish: PublishConfig, token: str | None
) -> None:
    token = hub.read_token if token == "reader" else token
    with pytest.raises(MachineError, match="HF_TOKEN") as error:
        check_access(publish, token)
    assert "may write" in str(error.value)
    assert not token or token not in str(error.value)


@pytest.mark.parametrize(
    "fault",
    [{"status": 503}, {"status": 429}, {"drop": "before"}, {"delay_s": 20}],
    ids=["trouble", "rate limit", "cut", "silence"],
)
def test_a_hub_that_gives_no_answer_is_worth_another_try_soon(
    hub: LocalHub, publish: PublishConfig, fault: dict[str, Any]
) -> None:
    hub.fault("whoami", **fault)
    started = time.monotonic()
    assert failure(lambda: check_access(publish, hub.token)).retryable
    assert time.monotonic() - started < 12


def test_a_dead_endpoint_in_the_preflight_speaks_of_no_upload(
    publish: PublishConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    said = str(failure(lambda: check_access(publish, "local")))
    assert said.endswith("Check the network and HF_ENDPOINT.")
    assert "http://127.0.0.1:9" in said


def test_without_a_target_nothing_is_asked(hub: LocalHub) -> None:
    check_access(PublishConfig(), None)
    assert require_token(PublishConfig(), {}) is None
    assert hub.requests() == []


@pytest.mark.parametrize(
    ("environ", "fields"),
    [
        ({}, ["HF_TOKEN"]),
        ({"HF_TOKEN": "  "}, ["HF_TOKEN"]),
        ({"HF_TOKEN": "t", "HF_HUB_OFFLINE": "1"}, ["HF_HUB_OFFLINE"]),
        ({"TRANSFORMERS_OFFLINE": "true"}, ["TRANSFORMERS_OFFLINE", "HF_TOKEN"]),
    ],
    ids=["no token", "blank token", "offline", "both"],
)
def test_what_the_environment_lacks_is_named(
    publish: PublishConfig, environ: dict[str, str], fields: list[str]
) -> None:
    with pytest.raises(MachineError) as error:
        require_token(publish, environ)
    assert [problem.field for problem in error.value.problems] == fields


def test_the_token_of_the_environment_is_returned(publish: PublishConfig) -> None:
    environ = {"HF_TOKEN": "t\n", "HF_HUB_OFFLINE": "0"}
    assert require_token(publish, environ) == "t"
