"""Judged and registered runs around a tiny policy that answers in the right form, if roughly.

Nothing is trained but the base, once, by heart: an adapter is drawn at random, small enough to
leave the form whole and another for each seed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from support.corpus import write_corpus
from support.tiny_policy import build_tiny_policy, pretrain

from subtext import tracking
from subtext.answer import format_answer
from subtext.config import PromptConfig
from subtext.data.dataset import dataset_rows
from subtext.data.masking import Cast
from subtext.data.scenarios import load_reference, load_run_scenarios
from subtext.policy.base_model import resolve_base
from subtext.policy.load import add_adapter, load_base, load_tokenizer, save_adapter
from subtext.policy.precision import choose_precision, machine_facts
from subtext.prepare import prepare_run
from subtext.run_dir import RunDir, load_config


def write_home(home: Path, n_clips: int = 40) -> Path:
    """Write `corpus` and `base`, a policy that knows the corpus's answers, to `home`.

    `$SUBTEXT_HOME` is set to `home` by the caller.
    """
    write_corpus(home / "corpus", n_clips=n_clips)
    base = build_tiny_policy(home / "base")
    scenarios = load_run_scenarios(prepared_run(home, "scratch"))
    rows = dataset_rows(scenarios, 2 * n_clips, prompt=PromptConfig())
    pretrain(base, [_example(row) for row in rows], steps=50)
    return base


def prepared_run(home: Path, run_id: str, **data: Any) -> RunDir:
    """A run of `home` that judges every held-out clip in batches of 5."""
    overrides = {
        "data": {"root": "corpus", "n_train_rows": 16, "eval_ratio": 0.5, **data},
        "model": {"source": "path", "name": str(home / "base")},
        "lora": {"r": 4, "alpha": 4},
        "warm_start": {"steps": 0},
        "grpo": {"max_completion_length": 40},
        "training": {"num_threads": 1},
        "evaluation": {
            "n_eval_clips": 40, "batch_size": 5, "ablations": [], "n_train_clips": 0,
            "judge_checkpoints": False,
        },
    }  # fmt: skip
    return prepare_run("demo", overrides, default_run_id=run_id)


def add_random_adapter(run: RunDir, seed: int, size: float = 0.02) -> None:
    """Save an adapter with random weights as the one that `run` trained."""
    import torch

    config = load_config(run)
    base = resolve_base(config.model)
    precision = choose_precision(machine_facts(), config.model)
    policy = add_adapter(load_base(base, precision), config.lora, seed)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            weight.data = size * torch.randn(weight.shape, generator=generator)
    save_adapter(
        policy, load_tokenizer(base), base, precision, Cast.of(load_run_scenarios(run)),
        load_reference(run), config, run.adapter,
    )  # fmt: skip


def registered_run(home: Path, run_id: str, seed: int, **data: Any) -> RunDir:
    """A run with a random adapter, in MLflow and registered, that has judged nothing yet."""
    run = prepared_run(home, run_id, **data)
    add_random_adapter(run, seed)
    tracking.start_run(run, "flow-1", "calm-otter")
    tracking.register_version(run)
    return run


def environment(home: Path) -> dict[str, str]:
    """The variables under which runs of `home` are made and used."""
    return {
        **os.environ,
        "SUBTEXT_HOME": str(home),
        "SUBTEXT_BASE_MODEL": str(home / "base"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{home}/mlflow.db",
    }


def _example(row: dict[str, Any]) -> dict[str, Any]:
    answer = format_answer("The voice says it.", row["gold"], 0.8)
    return {"prompt": row["prompt"], "completion": [{"role": "assistant", "content": answer}]}
