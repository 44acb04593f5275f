"""The first step of a run: refuse what can't work, then write down what will be done.

Everything here takes seconds and loads no model: configuration, machine, data, split.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from subtext import strict_json
from subtext.config import RunConfig
from subtext.data.clips import Scenarios
from subtext.data.folder import corpus_name
from subtext.data.group_split import check_labels
from subtext.data.run_split import divided, split_problems
from subtext.data.scenarios import data_digest, load_scenarios
from subtext.errors import ConfigError, DataError, Problem
from subtext.evaluation.leaks import leak_report, leak_warnings
from subtext.paths import below_root, is_folder
from subtext.policy.base_model import check_base
from subtext.policy.precision import choose_precision, machine_facts
from subtext.profiles import resolve
from subtext.prosody.reference import Reference
from subtext.rerun import differences
from subtext.run_dir import RunDir, load_config
from subtext.run_lock import working_on

logger = logging.getLogger(__name__)

_LONGEST_NAME = 255  # bytes, on Linux and elsewhere

_SET_BACK = {
    "data_digest": "Bring the clips of data.root back as they were",
    "judged_model": "Name the same model again",
}


def check_run(
    profile: str, overrides: Mapping[str, Any] | None, *, judged_model: str | None = None
) -> tuple[RunConfig, dict[str, Any]]:
    """Return the configuration and the split of a run that can work; write nothing.

    Raises ConfigError, DataError or MachineError; ConfigError also where `training.run_id` names a
    run that this one can't go on with (see `prepare_run`).
    """
    config, scenarios, split = _check(profile, overrides)
    check_entry(config, scenarios, split, judged_model=judged_model)
    return config, split


def check_entry(
    config: RunConfig,
    scenarios: Scenarios,
    split: dict[str, Any],
    *,
    judged_model: str | None = None,
) -> None:
    """Raise ConfigError where `training.run_id` names a run that this one can't go on with, or
    that another process works on."""
    run = run_directory(config, "")
    if config.training.run_id and run.config.exists():
        with working_on(run):
            _refuse_other_run(run, config, scenarios, split, judged_model)


def _check(
    profile: str, overrides: Mapping[str, Any] | None
) -> tuple[RunConfig, Scenarios, dict[str, Any]]:
    config = resolve(profile, overrides)
    choose_precision(machine_facts(config.model.device), config.model)
    check_base(config.model)
    check_runs_dir(config)
    scenarios = load_scenarios(config.data.root)
    return config, scenarios, make_split(scenarios, config)


def check_runs_dir(config: RunConfig) -> None:
    runs = run_directory(config, "run").path.parent
    nearest = next(folder for folder in (runs, *runs.parents) if os.path.lexists(folder))
    fault = ""
    if not is_folder(nearest) or not os.access(nearest, os.W_OK | os.X_OK):
        fault = f"{nearest} is no folder that may be written to"
    elif any(len(os.fsencode(part)) > _LONGEST_NAME for part in runs.parts):
        fault = f"a folder's name has {_LONGEST_NAME} bytes at most"
    elif os.path.expanduser(config.training.runs_dir).startswith("~"):  # noqa: PTH111
        fault = "this machine knows no such user"
    if fault:
        problem = Problem(
            "configuration", "training.runs_dir", config.training.runs_dir,
            f"can't hold run directories: {fault}", "Name another folder.",
        )  # fmt: skip
        raise ConfigError("Configuration refused", [problem])


def prepare_run(
    profile: str,
    overrides: Mapping[str, Any] | None,
    *,
    default_run_id: str,
    judged_model: str | None = None,
) -> RunDir:
    """Check everything and return the run, with its configuration and what follows from its split:
    who trains, what the prosody words stand for, and what the split leaks.

    `judged_model` is the model that a run judges which trains none; what crosses this split says
    nothing of a model trained on another, so there is no leak report then. A run that is there
    already is entered again where configuration, data and `judged_model` are those it was prepared
    with; what may change, such as `publish`, is written anew. Raises what `check_run` raises, and
    ConfigError where another process works on the run.
    """
    config, scenarios, split = _check(profile, overrides)
    run = run_directory(config, default_run_id).create()
    with working_on(run):
        _refuse_other_run(run, config, scenarios, split, judged_model)
        content = {
            "profile": str(profile),
            "config": config.model_dump(mode="json"),
            "judged_model": judged_model,
        }
        strict_json.write(run.config, content)
        strict_json.write(run.split, split)
        strict_json.write(run.prosody_reference, fit_reference(scenarios, split).record())
        if judged_model is None:
            _write_leaks(run, scenarios, split)
    logger.info(
        "run %s: %d training clips, %d held out, %d to be judged",
        run.run_id, len(split["train"]), len(split["held_out"]), len(split["judged"]),
    )  # fmt: skip
    return run


def fit_reference(scenarios: Scenarios, split: dict[str, Any]) -> Reference:
    whole_speakers_held_out = split["kind"] in ("speaker", "show")
    return Reference.fit(scenarios, split["train"], with_speakers=not whole_speakers_held_out)


def _write_leaks(run: RunDir, scenarios: Scenarios, split: dict[str, Any]) -> None:
    report = leak_report(scenarios, split)
    strict_json.write(run.leak_report, report)
    for warning in leak_warnings(report):
        logger.warning("%s", warning)


def run_directory(config: RunConfig, default_run_id: str) -> RunDir:
    """`training.runs_dir` below the checkout, and in it `training.run_id` or the default."""
    runs = below_root(config.training.runs_dir)
    return RunDir(runs / (config.training.run_id or default_run_id))


def make_split(scenarios: Scenarios, config: RunConfig) -> dict[str, Any]:
    """Divide the clips as `data.split` says and choose those that will be judged.

    Returns what `divided` does, with the name of the corpus and the digest of its clips. Raises
    DataError when the clips can't be divided so, or a half is left empty or with one label.
    """
    split = divided(scenarios, config)
    check_labels("training", split["train"], scenarios, config.data.split)
    check_labels("held-out", split["held_out"], scenarios, config.data.split)
    logger.info(
        "split %s of %d clips (require_prosody=%s): %d train (%d Pivot), %d held out (%d Pivot)",
        config.data.split, len(scenarios), config.data.require_prosody,
        len(split["train"]), _n_pivot(split["train"], scenarios),
        len(split["held_out"]), _n_pivot(split["held_out"], scenarios),
    )  # fmt: skip
    return {
        **split,
        "corpus": corpus_name(config.data.root),
        "data_digest": data_digest(scenarios),
    }


def _n_pivot(ids: list[str], scenarios: Scenarios) -> int:
    return sum(1 for clip_id in ids if scenarios[clip_id].get("is_pivot"))


def _refuse_other_run(
    run: RunDir,
    config: RunConfig,
    scenarios: Scenarios,
    split: dict[str, Any],
    judged_model: str | None,
) -> None:
    """A run directory holds one run: one configuration on one state of the data."""
    if not run.config.exists():
        return
    split_before = run.read(run.split, split)
    pairs = differences(load_config(run), config)
    pairs["judged_model"] = (run.read(run.config).get("judged_model"), judged_model)
    pairs["data_digest"] = (split_before["data_digest"], split["data_digest"])
    another = "choose another training.run_id" if config.training.run_id else "start a new run"
    problems = [
        Problem(
            f"run {run.run_id}", name, now, f"the run was made with {before!r}",
            f"{_SET_BACK.get(name, f'Set {name} back')}, or {another}.",
        )
        for name, (before, now) in pairs.items()
        if before != now
    ]  # fmt: skip
    if problems:
        raise ConfigError("Another run of this name is there", problems)
    if problems := list(split_problems(run.split, split_before, scenarios, config)):
        raise DataError("Run directory refused", problems)
