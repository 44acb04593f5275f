"""A run that a job made becomes a run of this machine."""

from __future__ import annotations

from contextlib import nullcontext

from subtext import strict_json
from subtext.config import RunConfig
from subtext.errors import ConfigError, Problem
from subtext.hf_jobs.archive import pull
from subtext.rerun import differences
from subtext.run_dir import RunDir, load_config
from subtext.run_lock import working_on

_OF_THIS_MACHINE = (("data", "root"), ("training", "runs_dir"), ("training", "price_per_hour"))


def check_free(run: RunDir, config: RunConfig) -> None:
    """Raise ConfigError where `run` is there already, of another configuration.

    Of the same, it is what came back before: it may come back once more.
    """
    if run.config.exists() and differences(load_config(run), config):
        problem = Problem(
            "configuration", "training.run_id", run.run_id,
            "names a run of this machine with another configuration",
            f"Choose another run_id, or delete {run.path}.",
        )  # fmt: skip
        raise ConfigError("Job refused", [problem])


def bring_back(run: RunDir, config: RunConfig, repo_id: str, token: str) -> str:
    """Pull `run` and write `config`'s folders and Hub targets into its configuration.

    Those of the job are of no use here, and it published nothing. Returns the commit of the
    dataset. Raises PublishError or DataError, and ConfigError where a process works on the run.
    """
    with working_on(run) if run.path.exists() else nullcontext():
        revision = pull(run, repo_id, token)
        _settle(run, config)
    return revision


def _settle(run: RunDir, config: RunConfig) -> None:
    recorded = run.require(run.config)
    theirs = load_config(run).model_dump(mode="json")
    ours = config.model_dump(mode="json")
    theirs["publish"] = ours["publish"]
    for section, field in _OF_THIS_MACHINE:
        theirs[section][field] = ours[section][field]
    strict_json.write(run.config, {**recorded, "config": theirs})
