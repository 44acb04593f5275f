"""A plan over real parts: the tiny base, a corpus, a local Hub, a dead MLflow; the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.corpus import write_corpus
from support.hub import LocalHub
from support.ports import closed_port
from support.tiny_policy import build_tiny_policy
from typer.testing import CliRunner

from subtext import strict_json
from subtext.cli.main import app
from subtext.config import PublishConfig
from subtext.errors import ConfigError, MachineError
from subtext.plan.plan import Plan, make_plan
from subtext.plan.tables import plan_markdown, plan_rows
from subtext.publishing.access import check_access
from subtext.run_dir import RunDir

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project root with a corpus and nothing else; no token, and MLflow's default store."""
    write_corpus(tmp_path / "corpus", n_clips=40)
    monkeypatch.setenv("SUBTEXT_HOME", str(tmp_path))
    for name in ("HF_TOKEN", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def knobs(**sections: dict[str, Any]) -> dict[str, Any]:
    return {"data": {"root": "corpus"}, **sections}


def planned(environ: dict[str, str] | None = None, **sections: dict[str, Any]) -> Plan:
    return make_plan("demo", knobs(**sections), environ or {})


def test_a_run_that_can_work_has_no_problems(home: Path) -> None:
    plan = planned()
    assert plan.ok, plan.problems
    assert plan.device is not None
    assert (plan.device["device"], plan.device["dtype"]) == ("cpu", "float32")
    assert plan.memory is not None
    assert 0 < plan.memory["needed_bytes"] < plan.memory["free_bytes"]
    assert plan.tokens is not None
    assert plan.tokens["model_reads"] == 4096
    found = plan.as_json()
    assert {"memory", "duration_s", "cost", "problems"} <= found.keys()
    assert (found["duration_s"], found["cost"], found["problems"]) == (None, None, [])
    assert found == json.loads(strict_json.dumps(found))
    assert sorted(path.name for path in home.iterdir()) == ["corpus"], "nothing is written"


def test_every_problem_is_found_at_once_with_its_remedy(home: Path, hub: LocalHub) -> None:
    environ = {
        "HF_TOKEN": hub.read_token,
        "HF_ENDPOINT": hub.url,
        "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{closed_port()}",
    }
    plan = planned(
        environ,
        model={"max_context_tokens": 200},
        publish={"adapter_repo": "team/judge"},
        training={"per_device_train_batch_size": 80_000},
        data={"root": "corpus", "n_train_rows": 1_000_000},
        warm_start={"steps": 0},
    )
    fields = {problem.field for problem in plan.problems}
    assert fields >= {"model.max_context_tokens", "HF_TOKEN", "MLFLOW_TRACKING_URI", "free on cpu"}
    assert all(problem.remedy for problem in plan.problems)
    [memory] = [problem for problem in plan.problems if problem.field == "free on cpu"]
    assert "training.gradient_checkpointing=true saves" in memory.remedy
    assert plan.mlflow is plan.hub is None
    with pytest.raises(MachineError) as caught:
        plan.refuse()
    assert caught.value.problems == plan.problems
    assert hub.read_token not in str(caught.value) + json.dumps(plan.as_json())


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"data": {"root": "nowhere"}}, "data.root"),
        ({"model": {"source": "path", "name": "nowhere"}}, "model.name"),
        ({"model": {"precision": "fp16"}}, "model.precision"),
        ({"training": {"runs_dir": "corpus/sarcasm_data.json"}}, "training.runs_dir"),
        ({"publish": {"adapter_repo": "me/judge"}}, "HF_TOKEN"),
    ],
    ids=["data", "base", "machine", "runs", "token"],
)
def test_what_can_not_be_looked_at_hides_nothing_else(
    home: Path, sections: dict[str, dict[str, Any]], field: str
) -> None:
    plan = planned(**sections)
    assert field in [problem.field for problem in plan.problems]
    rows = dict(plan_rows(plan))
    assert rows["problems"] == str(len(plan.problems))
    assert field in plan_markdown(plan)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("tokenizer.json", '{"x', id="tokenizer-cut"),
        pytest.param("tokenizer.json", "{}", id="tokenizer-of-nothing"),
        pytest.param("config.json", '{"model_type": "unheard-of"}', id="architecture"),
    ],
)
def test_a_base_that_can_not_be_read_is_a_problem(home: Path, name: str, content: str) -> None:
    build_tiny_policy(home / "base")
    (home / "base" / name).write_text(content)
    plan = planned(model={"source": "path", "name": "base"})
    [problem] = plan.problems
    assert (problem.field, problem.value) == ("model.name", "base")
    assert "can't be read" in problem.problem


def test_no_weights_are_loaded(home: Path) -> None:
    folder = build_tiny_policy(home / "base")
    (folder / "model.safetensors").write_bytes(b"no weights at all")
    plan = planned(model={"source": "path", "name": "base"})
    assert plan.ok, plan.problems
    assert plan.model is not None
    assert plan.model["parameters"] == 620416


_HUB_BASE = """
import os, sys
from huggingface_hub import HfApi
from subtext.plan.plan import make_plan
api = HfApi()
api.create_repo("local/base")
api.upload_folder(repo_id="local/base", folder_path=sys.argv[1])
knobs = {"data": {"root": "corpus"}, "model": {"source": "hub", "name": "local/base"}}
plan = make_plan("demo", knobs, os.environ)
print(plan.model and plan.model["parameters"], [str(each) for each in plan.problems])
"""


@pytest.mark.slow
def test_of_a_base_on_the_hub_small_files_are_fetched(home: Path, hub: LocalHub) -> None:
    result = subprocess.run(
        [sys.executable, "-c", _HUB_BASE, str(build_tiny_policy(home / "base"))],
        cwd=ROOT, capture_output=True, text=True, timeout=180, check=False,
        env={**os.environ, **hub.environment, "PYTHONPATH": str(ROOT),
             "HF_HOME": str(home / "hf")},
    )  # fmt: skip
    assert result.stdout.split("\n")[0] == "620416 []", result.stderr
    fetched = {file for request in hub.requests("resolve") for file in request["files"]}
    assert {"config.json", "tokenizer.json"} <= fetched
    assert not {file for file in fetched if file.endswith(".safetensors")}


def test_a_configuration_that_can_not_be_parsed_is_an_error(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"grpo\.max_stepz"):
        planned(grpo={"max_stepz": 1})


def test_an_earlier_run_gives_duration_and_cost(home: Path) -> None:
    plan = planned()
    run = RunDir(home / "runs" / "before").create()
    config = plan.config.model_dump(mode="json")
    strict_json.write(run.config, {"profile": "demo", "config": config})
    strict_json.write(run.log_history, [{"step": 1, "reward": 0.5, "step_time": 60.0}] * 3)
    found = planned(training={"price_per_hour": 3.6}).as_json()
    assert found["duration"]["train_s"] == 26 * 60.0
    assert found["cost"] == pytest.approx(found["duration_s"] / 1000)


def test_where_local_checks_fail_a_start_is_refused_without_heavy_libraries(home: Path) -> None:
    script = (
        "import sys\n"
        "from subtext.plan.plan import make_plan\n"
        "knobs = {'data': {'root': 'nowhere'}, 'publish': {'adapter_repo': 'me/judge'}}\n"
        "plan = make_plan('t4', knobs, {}, light_first=True)\n"
        "print(*sorted(problem.field for problem in plan.problems))\n"
        "heavy = {'torch', 'transformers', 'huggingface_hub', 'mlflow', 'sklearn'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert result.stdout.split() == ["HF_TOKEN", "data.root"], result.stderr


def test_the_hub_tells_who_may_write_where(hub: LocalHub, publish: PublishConfig) -> None:
    own = publish.model_copy(update={"adapter_repo": "local/judge"})
    access = check_access(own, hub.token)
    assert access is not None
    assert (access.name, access.role) == ("local", "write")
    adapter, results = access.targets
    assert (adapter.may_write, adapter.exists) == (True, False)
    assert results.may_write is None, "the local Hub tells no organisations"
    hub.call("POST", "/api/repos/create", {"name": "judge", "type": "model"}, token=hub.token)
    again = check_access(own, hub.token)
    assert again is not None
    assert again.targets[0].exists


def test_command(home: Path) -> None:
    given = ["plan", "--profile", "demo", "--set", "data.root=corpus"]
    table = CliRunner().invoke(app, given)
    assert table.exit_code == 0, table.output
    assert "completions a step" in table.output
    machine = CliRunner().invoke(app, [*given, "--json"])
    assert json.loads(machine.stdout)["problems"] == []
    wrong = CliRunner().invoke(app, [*given, "--set", "model.max_context_tokens=200", "--json"])
    assert wrong.exit_code == 1
    [problem] = json.loads(wrong.stdout)["problems"]
    assert problem["field"] == "model.max_context_tokens"
    assert problem["remedy"]


def test_priced_as_a_job_by_the_hubs_list(home: Path, hub: LocalHub, monkeypatch) -> None:
    for name, value in hub.environment.items():
        monkeypatch.setenv(name, value)
    given = ["plan", "--profile", "demo", "--set", "data.root=corpus", "--json", "--flavor"]
    priced = CliRunner().invoke(app, [*given, "t4-small"])
    assert json.loads(priced.stdout)["price_per_hour"] == pytest.approx(0.4, rel=1e-3)
    unknown = CliRunner().invoke(app, [*given, "t5-huge"])
    assert isinstance(unknown.exception, MachineError)


@pytest.mark.parametrize("root", ["x" * 300, "~nobody-at-all/clips", "/dev/null", "pipe"])
def test_odd_data_folders_are_problems(home: Path, root: str) -> None:
    (home / "pipe").mkdir()
    os.mkfifo(home / "pipe" / "sarcasm_data.json")
    found = make_plan("demo", {"data": {"root": root}}, os.environ, light_first=True)
    assert any("sarcasm_data.json" in str(problem) for problem in found.problems)


@pytest.mark.parametrize("address", ["http://[::1", "http://127.0.0.1:99999", "ftp://hub", "hub"])
def test_an_endpoint_that_is_no_address_is_refused_before_the_library_reads_it(
    home: Path, address: str
) -> None:
    environ = {**os.environ, "HF_ENDPOINT": address, "HF_TOKEN": "t"}
    given = ["plan", "--profile", "demo", "--set", "data.root=corpus", "--json"]
    command = [sys.executable, "-m", "subtext.cli", *given]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    [problem] = json.loads(done.stdout)["problems"]
    assert problem["field"] == "HF_ENDPOINT"


def test_a_token_that_no_header_could_carry_is_named_and_not_shown(home: Path) -> None:
    environ = {**os.environ, "HF_TOKEN": "abcdéfgh"}
    knobs = {"data": {"root": "corpus"}, "publish": {"adapter_repo": "a/b"}}
    [problem] = make_plan("demo", knobs, environ, light_first=True).problems
    assert problem.field == "HF_TOKEN"
    assert "abcd" not in str(problem)
