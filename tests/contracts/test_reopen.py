"""A trained run is finished with its own data, base and configuration, wherever they lie now."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.registered_run import add_random_adapter, prepared_run

from subtext import strict_json
from subtext.data.scenarios import load_run_scenarios
from subtext.errors import ConfigError, DataError, MachineError
from subtext.reopen import check_reopen, reopen
from subtext.run_dir import RunDir, load_config


@pytest.fixture(scope="module")
def trained(home: Path) -> RunDir:
    run = prepared_run(home, "trained")
    add_random_adapter(run, seed=1)
    return run


@pytest.fixture
def run(trained: RunDir, tmp_path: Path) -> RunDir:
    """A copy of the trained run."""
    return RunDir(Path(shutil.copytree(trained.path, tmp_path / "trained")))


def test_as_it_is(run: RunDir) -> None:
    before = run.config.read_bytes()
    assert reopen(run, {}) == run
    assert run.config.read_bytes() == before


def test_moved_data_and_base_are_recorded(run: RunDir, home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "corpus", tmp_path / "clips")
    shutil.copytree(home / "base", tmp_path / "policy")
    knobs = {
        "data": {"root": str(tmp_path / "clips")},
        "model": {"name": str(tmp_path / "policy")},
        "publish": {"adapter_repo": "me/judge"},
    }
    check_reopen(run, knobs)
    assert load_config(run).data.root == "corpus", "checking writes nothing"
    reopen(run, knobs)
    config = load_config(run)
    assert config.data.root == str(tmp_path / "clips")
    assert config.model.name == str(tmp_path / "policy")
    assert config.publish.adapter_repo == "me/judge"
    assert load_run_scenarios(run)


def test_data_that_is_not_there_is_looked_for_where_this_machine_has_it(
    run: RunDir, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = strict_json.read(run.config)
    recorded["config"]["data"]["root"] = "/of/another/machine"
    strict_json.write(run.config, recorded)
    with pytest.raises(DataError, match="data/mustard"):
        reopen(run, {})
    monkeypatch.setenv("SUBTEXT_DATA_ROOT", str(home / "corpus"))
    reopen(run, {})
    assert load_run_scenarios(run)


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        pytest.param(
            {"grpo": {"max_steps": 3}}, r"grpo\.max_steps = 3: the run was trained with", id="grpo"
        ),
        pytest.param({"lora": {"r": 8}}, r"lora\.r = 8", id="lora"),
        pytest.param({"evaluation": {"n_eval_clips": 3}}, r"n_eval_clips = 3", id="who-is-judged"),
    ],
)
def test_what_was_trained_does_not_change(run: RunDir, knobs: dict[str, Any], said: str) -> None:
    before = run.config.read_bytes()
    with pytest.raises(ConfigError, match=said):
        reopen(run, knobs)
    assert run.config.read_bytes() == before
    section, fields = next(iter(knobs.items()))
    same = load_config(run).model_dump(mode="json")[section]
    reopen(run, {section: {name: same[name] for name in fields}})


def test_other_clips(run: RunDir, home: Path, tmp_path: Path) -> None:
    clips = json.loads((home / "corpus" / "sarcasm_data.json").read_text())
    clips.popitem()
    root = tmp_path / "other"
    shutil.copytree(home / "corpus", root)
    (root / "sarcasm_data.json").write_text(json.dumps(clips))
    (root / "prosody.json").unlink()
    before = run.config.read_bytes()
    with pytest.raises(DataError, match="other clips than trained was prepared on"):
        reopen(run, {"data": {"root": str(root)}})
    assert run.config.read_bytes() == before


def test_another_base(run: RunDir, home: Path, tmp_path: Path) -> None:
    base = Path(shutil.copytree(home / "base", tmp_path / "base"))
    weights = base / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(MachineError, match="the adapter was trained on"):
        reopen(run, {"model": {"name": str(base)}})


def test_training_that_is_not_finished(run: RunDir) -> None:
    record = {
        "finished": False, "steps": 2, "train_runtime_s": 1.0, "resumed_at": [], "stopped": None,
        "first": {"reward": 0.5, "accuracy": 0.5}, "final": {"reward": 0.5, "accuracy": 0.5},
    }  # fmt: skip
    strict_json.write(run.training, record)
    with pytest.raises(DataError, match=r"training\.run_id=trained, which goes on"):
        reopen(run, {})


def test_a_run_without_an_adapter(run: RunDir) -> None:
    shutil.rmtree(run.adapter)
    with pytest.raises(DataError, match="No adapter"):
        reopen(run, {})
