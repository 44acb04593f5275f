"""A finished run to publish, repositories to publish it to, and what a failed upload raises."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.judged_run import judged_run

from subtext import strict_json
from subtext.config import PublishConfig
from subtext.errors import PublishError
from subtext.publishing.card import render_card
from subtext.run_dir import RunDir, load_config

SECRET = "hf_" + "aB3" * 11
BASE = {"source": "hub", "name": "Qwen/Qwen2.5-3B-Instruct", "revision": "a" * 40, "sha256": ""}
ADAPTER_FILES = {
    "README.md", "adapter_config.json", "adapter_model.safetensors", "chat_template.jinja",
    "subtext.json", "tokenizer.json", "tokenizer_config.json",
}  # fmt: skip


def repositories(test: str) -> PublishConfig:
    """Repositories of the test of that name alone."""
    tag = hashlib.sha1(test.encode()).hexdigest()[:10]
    return PublishConfig(
        adapter_repo=f"team/adapter-{tag}", results_repo=f"team/results-{tag}",
        results_repo_type="dataset",
    )  # fmt: skip


def finished_run(folder: Path, test: str) -> RunDir:
    """A finished run in `folder`: small files of the kinds that peft, TRL and the evaluation write.

    Not the same for two tests: the Hub keeps contents by hash, and would not be sent them twice.
    """
    run = judged_run(folder)
    run.adapter.mkdir()
    seed = int(hashlib.sha1(test.encode()).hexdigest()[:8], 16)
    weights = np.random.default_rng(seed).normal(size=(16, 8)).astype(np.float32)
    save_file({"lora_A.weight": weights}, run.adapter / "adapter_model.safetensors")
    config = {"base_model_name_or_path": BASE["name"], "peft_type": "LORA", "r": 16}
    strict_json.write(run.adapter / "adapter_config.json", config)
    strict_json.write(run.adapter / "subtext.json", {"base": BASE})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        strict_json.write(run.adapter / name, {"name": name})
    (run.adapter / "chat_template.jinja").write_text("{{ messages }}")
    (run.adapter / "training_args.bin").write_bytes(b"\x80 hub_token " + SECRET.encode())
    (run.adapter / "checkpoint-5").mkdir()
    (run.adapter / "checkpoint-5" / "optimizer.pt").write_bytes(b"state")
    evaluation = run.require(run.metrics)
    run.model_card.write_text(render_card(run, load_config(run), BASE, evaluation))
    strict_json.write(run.trainer_state, {"global_step": 3})
    strict_json.write(run.log_history, [{"step": 1, "reward": 0.5}])
    strict_json.write(run.held_out_eval, {"accuracy": 0.5})
    return run


def failure(upload: Callable[[], object]) -> PublishError:
    """The error that `upload` ends with."""
    with pytest.raises(PublishError) as error:
        upload()
    return error.value
