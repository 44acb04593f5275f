"""How well `subtext plan` estimates memory: its figure beside the peak that training reached.

    python benchmarks/memory_estimate.py [--only tiny]

The demo's tiny policy (0.6 M parameters, float32) with batches of 16 and 64 completions, and
SmolLM2-135M in 16 bit and in NF4 with 4, each trained for two steps on the demo corpus in a
process of its own, whose largest resident memory (`ru_maxrss`) counts. The estimate is for the
longest prompt that the steps met, as a plan's is for the longest of all.
"""

from __future__ import annotations

import argparse
import functools
import logging
import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from subtext.plan.base import base_facts
from subtext.plan.memory import estimate_memory
from subtext.policy.hush import hush_libraries
from subtext.policy.precision import choose_precision, machine_facts
from subtext.policy.threads import wait_passively
from subtext.prepare import prepare_run
from subtext.profiles import resolve
from subtext.run_dir import RunDir

_DATA = {"root": "data/demo", "split": "scene", "eval_ratio": 0.33, "require_prosody": False}
_SMALL = {
    "data": _DATA,
    "warm_start": {"steps": 0},
    "grpo": {"max_steps": 2, "num_generations": 4, "max_completion_length": 48},
    "training": {"per_device_train_batch_size": 4, "save_steps": 2},
}
_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny, 16 completions": (
        "demo",
        {"grpo": {"max_steps": 2}, "warm_start": {"steps": 2},
         "training": {"per_device_train_batch_size": 16, "save_steps": 2}},
    ),
    "tiny, 64 completions": (
        "demo",
        {"grpo": {"max_steps": 2}, "warm_start": {"steps": 2}, "training": {"save_steps": 2}},
    ),
    "SmolLM2-135M, 16 bit, 4": ("cpu", {**_SMALL, "model": {"quantization": "none"}}),
    "SmolLM2-135M, NF4, 4": ("cpu", {**_SMALL, "model": {"quantization": "nf4"}}),
}  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """The largest resident memory of the process, the longest prompt it met, and its seconds."""

    peak_bytes: int
    longest_prompt: int
    seconds: float


def main(only: str) -> None:
    """Train each case and print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table("", "prompt", "estimate MB", "peak MB", "estimate / peak", "seconds")
    for name, (profile, overrides) in _CASES.items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as runs:
            training = {**overrides["training"], "runs_dir": runs}
            changed = {**overrides, "training": training}
            trained = _alone(functools.partial(train, profile, changed))
        estimate = estimated(profile, changed, trained.longest_prompt)
        table.add_row(
            name, str(trained.longest_prompt), f"{estimate / 1e6:.0f}",
            f"{trained.peak_bytes / 1e6:.0f}", f"{estimate / trained.peak_bytes:.2f}",
            f"{trained.seconds:.0f}",
        )  # fmt: skip
    Console().print(table)


def estimated(profile: str, overrides: dict[str, Any], longest_prompt: int) -> int:
    """Bytes that a plan would estimate for prompts of that length."""
    config = resolve(profile, overrides)
    precision = choose_precision(machine_facts(config.model.device), config.model)
    shape = base_facts(config.model).shape
    assert shape is not None
    return estimate_memory(shape, config, precision, longest_prompt).needed_bytes


def train(profile: str, overrides: dict[str, Any]) -> Trained:
    """Train in this process, which does nothing else."""
    wait_passively()
    logging.disable(logging.INFO)
    hush_libraries()
    from trl import GRPOTrainer

    from subtext.policy.train import train_policy

    lengths: list[int] = []
    generate = GRPOTrainer._generate_and_score_completions

    def noted(self: Any, inputs: Any) -> Any:
        made = generate(self, inputs)
        lengths.append(int(made["prompt_ids"].shape[1]))
        return made

    GRPOTrainer._generate_and_score_completions = noted
    run: RunDir = prepare_run(profile, overrides, default_run_id="measured")
    started = time.monotonic()
    train_policy(run)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Trained(peak, max(lengths), time.monotonic() - started)


def _alone(work: Any) -> Trained:
    """Run `work` in a fresh process, whose peak of memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work).result()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="cases whose name holds this")
    main(parser.parse_args().only)
