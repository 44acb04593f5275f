"""Finish a trained run whose later steps failed, on this machine or another; nothing is trained."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from subtext import strict_json
from subtext.config import RunConfig
from subtext.config_sections import ModelConfig
from subtext.data.folder import data_root
from subtext.data.scenarios import data_digest, load_scenarios
from subtext.errors import ConfigError, DataError, MachineError, Problem
from subtext.policy.adapter_record import read_adapter_record
from subtext.policy.base_model import check_base, resolve_base
from subtext.rerun import MAY_CHANGE
from subtext.run_dir import RunDir, load_config
from subtext.run_lock import working_on

logger = logging.getLogger(__name__)


def check_reopen(run: RunDir, overrides: Mapping[str, Any]) -> RunConfig:
    """Return the configuration with which `run` can be finished here; write nothing.

    It is the recorded one with `overrides`, which may name what differs between machines. Where the
    recorded `data.root` is no folder here, $SUBTEXT_DATA_ROOT or the default counts. Raises
    ConfigError, DataError (training not finished, other clips) or MachineError (another base).
    """
    recorded = load_config(run)
    if problems := list(_refused(run, recorded, overrides)):
        raise ConfigError("This run can't be finished so", problems)
    _check_trained(run)
    config = _moved(recorded, overrides)
    expected, found = (
        run.require(run.split)["data_digest"],
        data_digest(load_scenarios(config.data.root)),
    )
    if found != expected:
        problem = Problem(
            str(data_root(config.data.root)), "digest", found,
            f"is not {expected}: other clips than {run.run_id} was prepared on",
            "Name the folder of its clips in data.root.",
        )  # fmt: skip
        raise DataError("Other data", [problem])
    _check_same_base(run, config.model)
    return config


def reopen(run: RunDir, overrides: Mapping[str, Any]) -> RunDir:
    """Check that `run` can be finished here, and record where its data and base are now.

    Raises what `check_reopen` raises, and ConfigError where another process works on the run.
    """
    config = check_reopen(run, overrides)
    with working_on(run):
        content = {**run.require(run.config), "config": config.model_dump(mode="json")}
        strict_json.write(run.config, content)
    logger.info("run %s: to be finished with the clips of %s", run.run_id, config.data.root or ".")
    return run


def _refused(run: RunDir, recorded: RunConfig, overrides: Mapping[str, Any]) -> Iterator[Problem]:
    before = recorded.model_dump(mode="json")
    for section, fields in overrides.items():
        for name, value in fields.items():
            field, was = f"{section}.{name}", before[section][name]
            moved_base = field == "model.name" and recorded.model.source == "path"
            if value != was and field not in MAY_CHANGE and not moved_base:
                yield Problem(
                    f"run {run.run_id}", field, value, f"the run was trained with {was!r}",
                    "Leave it out, or train a new run.",
                )  # fmt: skip


def _check_trained(run: RunDir) -> None:
    read_adapter_record(run.adapter)
    record = run.read(run.training)
    if record is not None and not record["finished"]:
        problem = Problem(
            str(run.training), "finished", False, "this run's training did not come to its end",
            f"Start it again with training.run_id={run.run_id}, which goes on from its last "
            "checkpoint, or judge the adapter as it is with protocol=model.",
        )  # fmt: skip
        raise DataError("Nothing to finish yet", [problem])


def _moved(recorded: RunConfig, overrides: Mapping[str, Any]) -> RunConfig:
    merged = recorded.model_dump(mode="json")
    if not data_root(recorded.data.root).is_dir():
        merged["data"]["root"] = ""
    for section, fields in overrides.items():
        merged[section] |= fields
    return RunConfig.model_validate(merged)


def _check_same_base(run: RunDir, model: ModelConfig) -> None:
    check_base(model)
    trained_on = read_adapter_record(run.adapter)["base"]["sha256"]
    found = resolve_base(model).sha256 if model.source == "path" else trained_on
    if found != trained_on:
        problem = Problem(
            f"run {run.run_id}", "model.name", model.name,
            f"holds weights with sha256 {found}, and the adapter was trained on {trained_on}",
            "Name the folder of the base that it was trained on.",
        )  # fmt: skip
        raise MachineError("Another base model", [problem])
