"""The first step of a run: refuse what can't work, then write down what will be done.

Everything here takes seconds and loads no model: configuration, machine, data, split.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from subtext import strict_json
from subtext.config import RunConfig
from subtext.data.scenarios import data_digest, load_scenarios
from subtext.data.splits import select_clips, split_clip_ids
from subtext.errors import ConfigError, Problem
from subtext.paths import project_root
from subtext.policy.precision import choose_precision, machine_facts
from subtext.profiles import resolve
from subtext.run_dir import RunDir

logger = logging.getLogger(__name__)

Scenarios = dict[str, dict[str, Any]]


def check_run(
    profile: str, overrides: Mapping[str, Any] | None
) -> tuple[RunConfig, dict[str, Any]]:
    """Return the configuration and the split of a run that can work; write nothing.

    Raises ConfigError, DataError or MachineError.
    """
    config = resolve(profile, overrides)
    split = make_split(load_scenarios(config.data.root), config)
    choose_precision(machine_facts(), config.model)
    return config, split


def prepare_run(
    profile: str, overrides: Mapping[str, Any] | None, *, default_run_id: str
) -> RunDir:
    """Check everything, write `config.json` and `split.json`, and return the run directory.

    Raises what `check_run` raises, and ConfigError when the directory belongs to a run with
    another configuration.
    """
    config, split = check_run(profile, overrides)
    run = run_directory(config, default_run_id)
    content = {"profile": str(profile), "config": config.model_dump(mode="json")}
    _refuse_other_config(run, content)
    run.create()
    strict_json.write(run.config, content)
    strict_json.write(run.split, split)
    logger.info(
        "run %s: %d training clips, %d held out, %d to be judged",
        run.run_id, len(split["train"]), len(split["held_out"]), len(split["judged"]),
    )  # fmt: skip
    return run


def run_directory(config: RunConfig, default_run_id: str) -> RunDir:
    """`training.runs_dir` below the checkout, and in it `training.run_id` or the default."""
    runs = project_root() / Path(config.training.runs_dir).expanduser()
    return RunDir(runs / (config.training.run_id or default_run_id))


def make_split(scenarios: Scenarios, config: RunConfig) -> dict[str, Any]:
    """Divide the clips and choose those that will be judged.

    The split is of all clips; `data.require_prosody` filters both halves after it, so that who
    is held out is the same in every profile. Raises ConfigError when a half is left empty.
    """
    data, evaluation = config.data, config.evaluation
    train, held_out = split_clip_ids(scenarios, data.eval_ratio, data.split_seed)
    halves = {
        "train": select_clips(train, scenarios, data.require_prosody),
        "held_out": select_clips(held_out, scenarios, data.require_prosody),
    }
    for name, ids in halves.items():
        if not ids:
            problem = Problem(
                "configuration", "data.require_prosody", data.require_prosody,
                f"leaves no {name} clip", "Add prosody.json to the data, or set it to false.",
            )  # fmt: skip
            raise ConfigError("Configuration refused", [problem])
    order = seed_order if evaluation.clip_order == "seed" else stratified_order
    return {
        **halves,
        "judged": order(halves["held_out"], scenarios)[: evaluation.n_eval_clips],
        "data_digest": data_digest(scenarios),
        "eval_ratio": data.eval_ratio,
        "seed": data.split_seed,
    }


def seed_order(clip_ids: Iterable[str], scenarios: Scenarios) -> list[str]:
    """Sorted ids, as the seed judged them: on MUStARD the first are nearly all of one show."""
    return sorted(clip_ids)


def stratified_order(clip_ids: Iterable[str], scenarios: Scenarios) -> list[str]:
    """An order whose every beginning holds labels and shows in about their proportions.

    Each clip is placed at its relative rank within its (label, show) group.
    """
    groups: dict[tuple[bool, str], list[str]] = defaultdict(list)
    for clip_id in sorted(clip_ids):
        clip = scenarios[clip_id]
        groups[clip["sarcasm"], clip["show"]].append(clip_id)
    placed = [
        ((rank + 0.5) / len(members), clip_id)
        for members in groups.values()
        for rank, clip_id in enumerate(members)
    ]
    return [clip_id for _, clip_id in sorted(placed)]


def _refuse_other_config(run: RunDir, content: dict[str, Any]) -> None:
    """A run directory belongs to one configuration; a retry of the same run may enter again."""
    before = run.read(run.config)
    if before is not None and before != content:
        problem = Problem(
            "configuration", "training.run_id", run.run_id,
            "names a run that was made with another configuration",
            f"Choose another run_id, or delete {run.path}.",
        )  # fmt: skip
        raise ConfigError("Configuration refused", [problem])
