"""Train the policy of a run: warm start where asked for, then GRPO; everything goes to the run
directory. Held-out clips are kept out by an assertion at this door."""

from __future__ import annotations

import functools
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

from subtext.config import RunConfig
from subtext.data.dataset import dataset_rows
from subtext.data.masking import Cast
from subtext.data.scenarios import load_reference, load_run_scenarios
from subtext.errors import ConfigError, Problem, TrainingError
from subtext.policy import grpo
from subtext.policy.base_model import resolve_base
from subtext.policy.hush import hush_libraries
from subtext.policy.load import (
    CHAT_TEMPLATE_OPTIONS,
    add_adapter,
    load_base,
    load_tokenizer,
    save_adapter,
)
from subtext.policy.precision import choose_precision, machine_facts
from subtext.policy.threads import set_threads
from subtext.policy.warm_start import teacher_examples, warm_start
from subtext.progress import Watcher, nobody
from subtext.prompts import build_messages
from subtext.rewards import make_reward_fn
from subtext.run_dir import RunDir, load_config

logger = logging.getLogger(__name__)


def train_policy(
    run: RunDir, watcher: Watcher = nobody, reward: grpo.RewardFunction | None = None
) -> dict[str, Any]:
    """Train as `run`'s config and split say; return a small JSON summary.

    `reward` replaces the configured reward, for experiments that must break it on purpose.
    Raises TrainingError, ConfigError, DataError or MachineError; what was saved before stays.
    """
    hush_libraries()
    config = load_config(run)
    scenarios, rows = training_rows(run, config)
    precision = choose_precision(machine_facts(config.model.device), config.model)
    threads = set_threads(config.training.num_threads)
    logger.info("precision: %s; torch threads: %d", precision, threads)

    base = resolve_base(config.model)
    tokenizer = load_tokenizer(base)
    check_prompt_lengths(tokenizer, run, scenarios, config)
    model = add_adapter(load_base(base, precision), config.lora, config.training.seed)
    save_to = functools.partial(
        save_adapter,
        model,
        tokenizer,
        base,
        precision,
        Cast.of(scenarios),
        load_reference(run),
        config,
    )

    started = time.monotonic()
    if config.warm_start.steps:
        examples = teacher_examples(rows, scenarios, config)
        with tempfile.TemporaryDirectory(prefix="subtext-warm-start-") as scratch:
            warm_start(model, tokenizer, examples, config, precision, Path(scratch), watcher)
        save_to(run.warm_adapter)

    history = grpo.run_grpo(
        model,
        tokenizer,
        rows,
        reward or make_reward_fn(config.reward.kind),
        config,
        precision,
        run,
        functools.partial(save_to, run.adapter),
        watcher,
    )
    return _summary(history, time.monotonic() - started)


def training_rows(
    run: RunDir, config: RunConfig
) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Return the scenarios and the training rows of `run`.

    Raises TrainingError if a held-out clip is among the rows.
    """
    scenarios = load_run_scenarios(run)
    split = run.read(run.split)
    rows = dataset_rows(
        scenarios,
        config.data.n_train_rows,
        seed=config.data.dataset_seed,
        allowed_clip_ids=set(split["train"]),
        pivot_oversample=config.data.pivot_oversample,
        class_balance=config.data.class_balance,
        prompt=config.prompt,
    )
    leaked = {row["clip_id"] for row in rows} & set(split["held_out"])
    if leaked:
        raise TrainingError(
            f"{run.split}: {len(leaked)} held-out clips are among the training rows, for example "
            f"{min(leaked)}. Delete the run directory and start again."
        )
    return scenarios, rows


def check_prompt_lengths(
    tokenizer: Any, run: RunDir, scenarios: dict[str, dict[str, Any]], config: RunConfig
) -> None:
    """Refuse a prompt that, with the longest answer, exceeds `model.max_context_tokens`.

    Checks the prompts of training and of judging. TRL never truncates one, so an overlong prompt
    would only show as a crash or as noise. Raises ConfigError that names the longest.
    """
    split = run.read(run.split)
    answer = max(config.grpo.max_completion_length, config.evaluation.max_new_tokens)
    room = config.model.max_context_tokens - answer
    lengths = {
        clip_id: len(
            tokenizer.apply_chat_template(
                build_messages(clip_id, scenarios, config.prompt),
                add_generation_prompt=True,
                return_dict=True,
                **CHAT_TEMPLATE_OPTIONS,
            )["input_ids"]
        )
        for clip_id in [*split["train"], *split["judged"]]
    }
    longest = max(lengths, key=lambda clip_id: lengths[clip_id])
    logger.info("longest prompt: %d tokens (clip %s)", lengths[longest], longest)
    too_long = sum(length > room for length in lengths.values())
    if too_long:
        problem = Problem(
            "configuration", "model.max_context_tokens", config.model.max_context_tokens,
            f"is too small for {too_long} of {len(lengths)} prompts: clip {longest} has "
            f"{lengths[longest]} tokens beside an answer of up to {answer}",
            f"Set it to {lengths[longest] + answer} or more, where the model reads that far.",
        )  # fmt: skip
        raise ConfigError("Configuration refused", [problem])


def _summary(history: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    steps = [record for record in history if "reward" in record]
    return {
        "steps": len(steps),
        "train_runtime_s": round(seconds, 1),
        "first": _reward_and_accuracy(steps[:1]),
        "final": _reward_and_accuracy(steps[-1:]),
    }


def _reward_and_accuracy(records: list[dict[str, Any]]) -> dict[str, float | None]:
    record = records[0] if records else {}
    return {name: record.get(name) for name in ("reward", "accuracy")}
