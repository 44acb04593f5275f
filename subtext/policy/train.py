"""Train the policy of a run: warm start where asked for, then GRPO; everything goes to the run
directory, and what is there already is not done again. Held-out clips are kept out by an assertion
at this door."""

from __future__ import annotations

import functools
import logging
import tempfile
from pathlib import Path
from typing import Any

from subtext.config import ModelConfig, RunConfig
from subtext.data.dataset import dataset_rows
from subtext.data.masking import Cast
from subtext.data.scenarios import load_reference, load_run_scenarios
from subtext.errors import ConfigError, TrainingError
from subtext.oracle import check_reward
from subtext.policy import grpo
from subtext.policy.adapter_record import ADAPTER_RECORD, read_adapter_record
from subtext.policy.base_model import pinned, resolve_base
from subtext.policy.hush import hush_libraries
from subtext.policy.launch import launch_training
from subtext.policy.load import (
    add_adapter,
    load_base,
    load_tokenizer,
    save_adapter,
)
from subtext.policy.precision import choose_precision, machine_facts
from subtext.policy.prompt_lengths import context_problems, prompt_lengths
from subtext.policy.ranks import take_own_gpu, writes_records
from subtext.policy.threads import set_threads
from subtext.policy.training_record import (
    TrainingRecord,
    finished_training,
    refuse_after_alarm,
)
from subtext.policy.warm_start import load_warm_adapter, teacher_examples, warm_start
from subtext.progress import Watcher, nobody
from subtext.rewards import RewardFn, make_reward_fn
from subtext.run_dir import RunDir, load_config

logger = logging.getLogger(__name__)


def train_policy(
    run: RunDir, watcher: Watcher = nobody, reward: RewardFn | None = None
) -> dict[str, Any]:
    """Train as `run`'s config and split say, and return what its training.json then holds.

    A run that was trained to its end is not trained again. One that was interrupted goes on: with
    the weights of its warm start, where that ended, and from the newest whole checkpoint. On a CPU
    it then takes the steps that it would have taken without the interruption, as long as no row is
    drawn a second time: TRL begins a resumed pass in the order of the first.

    `reward` replaces the configured reward, for experiments that must break it on purpose; they
    train in this process. Raises TrainingError, ConfigError, DataError or MachineError; what was
    saved before stays.
    """
    if (done := finished_training(run)) is not None:
        logger.info("run %s is trained already: %d steps", run.run_id, done["steps"])
        return done
    config = load_config(run)
    refuse_after_alarm(run, config)
    n_processes = config.training.num_processes
    if n_processes == 1 or reward is not None:
        return train_in_this_process(run, watcher, reward)
    launch_training(run, n_processes, watcher)
    return dict(run.require(run.training))


def train_in_this_process(
    run: RunDir, watcher: Watcher = nobody, reward: RewardFn | None = None
) -> dict[str, Any]:
    """Train as `train_policy` does, as one of the ranks where there are several."""
    record = TrainingRecord(run)
    hush_libraries()
    config = load_config(run)
    scenarios, rows = training_rows(run, config)
    if reward is None:
        reward = make_reward_fn(config.reward.kind)
        check_reward(reward, rows)
    precision = choose_precision(machine_facts(config.model.device), config.model)
    take_own_gpu()
    threads = set_threads(config.training.num_threads)
    logger.info("precision: %s; torch threads: %d", precision, threads)

    base = resolve_base(_as_trained_before(config.model, run))
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

    if config.warm_start.steps and not load_warm_adapter(model, run.warm_adapter):
        examples = teacher_examples(rows, scenarios, config)
        with tempfile.TemporaryDirectory(prefix="subtext-warm-start-") as scratch:
            warm_start(model, tokenizer, examples, config, precision, Path(scratch), watcher)
        if writes_records():
            save_to(run.warm_adapter)
        record.write([])

    return grpo.run_grpo(
        model,
        tokenizer,
        rows,
        reward,
        config,
        precision,
        run,
        functools.partial(save_to, run.adapter),
        watcher,
        record,
    )


def _as_trained_before(model: ModelConfig, run: RunDir) -> ModelConfig:
    """A run that goes on does so with the base it began with, also where a branch has moved."""
    for adapter in (run.adapter, run.warm_adapter):
        if (adapter / ADAPTER_RECORD).exists():
            return pinned(model, read_adapter_record(adapter)["base"])
    return model


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
    """Refuse a prompt, of training or judging, that leaves no room for the longest answer.

    Raises ConfigError that names the longest.
    """
    split = run.read(run.split)
    lengths = prompt_lengths(tokenizer, [*split["train"], *split["judged"]], scenarios, config)
    longest = max(lengths, key=lambda clip_id: lengths[clip_id])
    logger.info("longest prompt: %d tokens (clip %s)", lengths[longest], longest)
    if problems := list(context_problems(lengths, config, None)):
        raise ConfigError("Configuration refused", problems)
