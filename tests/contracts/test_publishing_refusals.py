"""What is refused before anything is sent: secrets and paths in files, bad access."""

from __future__ import annotations

import base64
import json
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.finished_run import SECRET, failure, finished_run
from support.hub import LocalHub

from subtext import strict_json
from subtext.config import PublishConfig
from subtext.errors import MachineError
from subtext.paths import project_root
from subtext.publishing.access import check_access, require_token
from subtext.publishing.hub import publish_adapter, publish_result
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
    "hide",
    [
        lambda text: f"\\u{ord(text[0]):04x}{text[1:]}",
        lambda text: f"%{ord(text[0]):02x}{text[1:]}",
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: base64.urlsafe_b64encode(b"a:" + text.encode()).decode(),
    ],
    ids=["JSON escape", "URL escape", "base64", "base64 inside more"],
)
@pytest.mark.parametrize("secret", [SECRET, "local-write-token"], ids=["any token", "the token"])
def test_a_disguised_token_blocks_the_upload(
    hub: LocalHub, run: RunDir, publish: PublishConfig, hide: Callable[[str], str], secret: str
) -> None:
    run.log_history.write_text(f'[{{"note": "{hide(secret)}"}}]')
    error = failure(lambda: publish_result(run, "log_history", publish, hub.token))
    assert not error.retryable
    assert "log_history.json" in str(error)
    assert secret not in str(error)
    assert hub.requests() == []


@pytest.mark.parametrize("place", ["metadata", "numbers"])
def test_a_token_in_the_weights_blocks_the_upload(
    hub: LocalHub, run: RunDir, publish: PublishConfig, place: str
) -> None:
    weights = run.adapter / "adapter_model.safetensors"
    if place == "metadata":
        values = {"a": np.zeros(2, dtype=np.float32)}
        save_file(values, weights, {"note": base64.b64encode(SECRET.encode()).decode()})
    else:
        save_file({"a": np.frombuffer(SECRET.encode().ljust(40), dtype=np.uint8)}, weights)
    error = failure(lambda: adapter(run, publish, hub))
    assert "adapter_model.safetensors holds what looks like an access token" in str(error)
    assert hub.requests() == []


@pytest.mark.parametrize(
    ("variable", "value", "secret"),
    [
        ("MLFLOW_TRACKING_URI", "https://ann:s3cret-p%40ssword@host/", "s3cret-p@ssword"),
        ("MLFLOW_TRACKING_PASSWORD", "long-enough-secret", "long-enough-secret"),
    ],
)
def test_other_passwords_of_the_environment_block_the_upload(
    hub: LocalHub, run: RunDir, publish: PublishConfig, variable: str, value: str, secret: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv(variable, value)
    strict_json.write(run.held_out_eval, {"note": f"with {secret}"})
    error = failure(lambda: result(run, publish, hub))
    assert "a token or password that this machine uses" in str(error)
    assert secret not in str(error)
    assert hub.requests() == []


@pytest.mark.parametrize(
    "path",
    [
        "{run}/adapter",
        "{home}/models/tiny",
        "{checkout}/data",
        "{tmp}/scratch-1",
        "file://{checkout}/data",
        "{checkout_in_url}%2Fdata",
        "{checkout_in_json}\\/data",
        "/mnt/disk/models/tiny",
        "C:\\\\models\\\\tiny",
        "file:///srv/models/tiny",
    ],
)
def test_a_path_of_a_machine_blocks_the_upload(
    hub: LocalHub, run: RunDir, publish: PublishConfig, path: str
) -> None:
    checkout = str(project_root())
    path = path.format(
        run=run.path, home=Path.home(), checkout=checkout, tmp=tempfile.gettempdir(),
        checkout_in_url=quote(checkout, safe=""), checkout_in_json=checkout.replace("/", "\\/"),
    )  # fmt: skip
    (run.adapter / "tokenizer_config.json").write_text(f'{{"name_or_path": "{path}"}}')
    error = failure(lambda: adapter(run, publish, hub))
    assert not error.retryable
    assert "tokenizer_config.json names a path of" in str(error)
    assert hub.requests() == []


def test_what_only_resembles_a_path_or_a_token_is_published(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    text = f"https://host{project_root()}/x, a{Path.home()}/x, and/or, hf_token, hf_{'a' * 8}, C:/"
    strict_json.write(run.trainer_state, {"note": text})
    assert publish_result(run, "trainer_state", publish, hub.token)["committed"] is True
    answer = {"completion_text": "He keeps it in C:\\secrets and file:///srv/x"}
    strict_json.write(run.held_out_eval, answer)
    assert result(run, publish, hub)["committed"] is True, "a model may speak of any path"


@pytest.mark.parametrize("name", ["tokenizer.bin", "tokenizer.pt", "tokenizer.env"])
def test_a_file_that_can_hold_more_than_data_blocks_the_upload(
    hub: LocalHub, run: RunDir, publish: PublishConfig, name: str
) -> None:
    (run.adapter / name).write_bytes(b"\x80")
    error = failure(lambda: adapter(run, publish, hub))
    assert f"{name} may hold a token, code or optimiser state" in str(error)
    assert hub.requests() == []


def test_a_pickle_named_as_weights_blocks_the_upload(
    hub: LocalHub, run: RunDir, publish: PublishConfig
) -> None:
    (run.adapter / "adapter_model.safetensors").write_bytes(pickle.dumps({"a": [1.0] * 9}))
    assert "adapter_model.safetensors is empty or cut" in str(
        failure(lambda: adapter(run, publish, hub))
    )
    assert hub.requests() == []


def test_a_link_out_of_the_run_directory_blocks_the_upload(
    hub: LocalHub, run: RunDir, publish: PublishConfig, tmp_path: Path
) -> None:
    (tmp_path / "notes.json").write_text("{}")
    (run.adapter / "tokenizer.json").unlink()
    (run.adapter / "tokenizer.json").symlink_to(tmp_path / "notes.json")
    assert "is a link that leads out" in str(failure(lambda: adapter(run, publish, hub)))
    assert hub.requests() == []


def test_a_run_directory_that_is_a_link_itself_is_published(
    hub: LocalHub, run: RunDir, publish: PublishConfig, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    linked = tmp_path / "elsewhere" / "demo-7"
    linked.symlink_to(run.path)
    assert adapter(RunDir(linked), publish, hub)["committed"] is True


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
    assert [entry["verb"] for entry in hub.requests()] == ["whoami", "info", "info"]


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
