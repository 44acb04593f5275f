"""The first step of a run: refuse what can't work, then write down what will be done.

Everything here takes seconds and loads no model: configuration, machine, data, split.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from subtext import strict_json
from subtext.config import RunConfig
from subtext.data.scenarios import corpus_name, data_digest, load_scenarios
from subtext.data.splits import judging_order, select_clips, split_clip_ids
from subtext.errors import ConfigError, DataError, Problem
from subtext.paths import project_root
from subtext.policy.base_model import check_base
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
    choose_precision(machine_facts(config.model.device), config.model)
    check_base(config.model)
    _check_runs_dir(config)
    return config, make_split(load_scenarios(config.data.root), config)


def _check_runs_dir(config: RunConfig) -> None:
    runs = run_directory(config, "run").path.parent
    nearest = next(folder for folder in (runs, *runs.parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        problem = Problem(
            "configuration", "training.runs_dir", config.training.runs_dir,
            f"can't hold run directories: {nearest} is no folder that may be written to",
            "Name another folder.",
        )  # fmt: skip
        raise ConfigError("Configuration refused", [problem])


def check_new(config: RunConfig) -> None:
    """Raise ConfigError where `training.run_id` names a run that is there already."""
    run = run_directory(config, "")
    if config.training.run_id and run.config.exists():
        raise ConfigError("Configuration refused", [_used_run_id(run)])


def prepare_run(
    profile: str, overrides: Mapping[str, Any] | None, *, default_run_id: str
) -> RunDir:
    """Check everything, write `config.json` and `split.json`, and return the run directory.

    `default_run_id` also says whose run it is. Raises what `check_run` raises, and ConfigError when
    the directory belongs to another run.
    """
    config, split = check_run(profile, overrides)
    run = run_directory(config, default_run_id)
    content = {
        "profile": str(profile),
        "config": config.model_dump(mode="json"),
        "owner": default_run_id,
    }
    _refuse_other_run(run, content, split)
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
    is held out is the same in every profile. Raises DataError when a half is left empty, or
    training with one label.
    """
    data, evaluation = config.data, config.evaluation
    train, held_out = split_clip_ids(scenarios, data.eval_ratio, data.split_seed)
    trained = select_clips(train, scenarios, data.require_prosody)
    judged = select_clips(held_out, scenarios, data.require_prosody)
    labels = {scenarios[clip_id]["sarcasm"] for clip_id in trained}
    if len(labels) == 1:
        problem = Problem(
            "training clips", "sarcasm", labels.pop(), f"is the label of all {len(trained)}",
            "Train on clips of both labels.",
        )  # fmt: skip
        raise DataError("Nothing to tell apart", [problem])
    order = judging_order(judged, scenarios, evaluation.clip_order)
    return {
        "train": trained,
        "held_out": judged,
        "judged": order[: evaluation.n_eval_clips],
        "corpus": corpus_name(config.data.root),
        "data_digest": data_digest(scenarios),
        "eval_ratio": data.eval_ratio,
        "seed": data.split_seed,
    }


def _refuse_other_run(run: RunDir, content: dict[str, Any], split: dict[str, Any]) -> None:
    """A run directory belongs to one run on one state of the data, which may enter it again."""
    before, divided = run.read(run.config, content), run.read(run.split, split)
    if before != content or divided != split:
        raise ConfigError("Configuration refused", [_used_run_id(run)])


def _used_run_id(run: RunDir) -> Problem:
    return Problem(
        "configuration", "training.run_id", run.run_id,
        "names a run that was made before, by another start, configuration or data",
        f"Choose another run_id, or delete {run.path}.",
    )  # fmt: skip
