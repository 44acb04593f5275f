"""The job that stands for a run: its image, its command, its labels. Nothing in it is secret."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from subtext import strict_json
from subtext.config_sections import Section
from subtext.hf_jobs.checkout import code_of
from subtext.hf_jobs.config import TOKEN, JobConfig
from subtext.profiles import resolve

RUN_LABEL, SPEC_LABEL = "subtext-run", "subtext-spec"
_SPEC_CHARACTERS = 16


class PlannedJob(Section):
    """Everything that the Hub is asked for, save the values of `secrets`."""

    run_id: str
    namespace: str
    archive_repo: str
    image: str
    command: tuple[str, ...]
    env: dict[str, str]
    secrets: tuple[str, ...]
    flavor: str
    timeout_s: int
    commit: str

    @property
    def labels(self) -> dict[str, str]:
        """What this very job is found by again, also after a reply that got lost."""
        spec = strict_json.digest(self.model_dump(mode="json"))[:_SPEC_CHARACTERS]
        return {RUN_LABEL: self.run_id, SPEC_LABEL: spec}


def plan_job(
    profile: str, overrides: Mapping[str, Any], job: JobConfig, run_id: str, namespace: str
) -> PlannedJob:
    """Return the job that trains and judges `profile` with `overrides` as run `run_id`.

    It neither publishes nor keeps its MLflow store: that is done where the run comes back to.
    `namespace`: whose job it is. Raises ConfigError.
    """
    archive_repo = job.archive_repo or f"{namespace}/subtext-runs"
    repository, commit = code_of(job)
    secrets = (TOKEN, *(name for name in job.secrets if name != TOKEN))
    train = _train_command(profile, overrides, run_id)
    named = [part for name in secrets for part in ("--secret", name)]
    keep = [
        "python", "-m", "subtext.hf_jobs.archive", "keep", "--repo", archive_repo, "--run", run_id,
        "--every", str(job.push_every_s), *named, "--", *train,
    ]  # fmt: skip
    steps = [*_code_steps(job, repository, commit), job.install]
    if _fetches_mustard(profile, overrides, job):
        steps.append("python -m flows.data_flow --source mustard")
    steps.append(f"exec {shlex.join(keep)}")
    script = "\n".join(["set -eu", *filter(None, steps)])
    return PlannedJob(
        run_id=run_id, namespace=namespace, archive_repo=archive_repo, image=job.image,
        command=("bash", "-c", script), env=job.env, secrets=secrets, flavor=job.flavor,
        timeout_s=job.timeout_s, commit=commit,
    )  # fmt: skip


def _code_steps(job: JobConfig, repository: str, commit: str) -> list[str]:
    if job.code_path:
        return [f"cd {shlex.quote(job.code_path)}"]
    return [
        'cd "$(mktemp -d)"',
        f"git clone --quiet --no-checkout {shlex.quote(repository)} code",
        "cd code",
        f"git checkout --quiet --detach {commit}",
    ]


def _train_command(profile: str, overrides: Mapping[str, Any], run_id: str) -> list[str]:
    here = {
        "training": {"run_id": run_id, "runs_dir": "runs"},
        "publish": {"adapter_repo": "", "results_repo": ""},
    }
    knobs = {
        section: {**overrides.get(section, {}), **here.get(section, {})}
        for section in sorted({*overrides, *here})
    }
    command = ["python", "-m", "flows.train_flow", "--profile", str(profile)]
    return command + [part for knob in _assignments(knobs) for part in ("--set", knob)]


def _assignments(knobs: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    for section, fields in knobs.items():
        for field, value in sorted(fields.items()):
            yield f"{section}.{field}={value if isinstance(value, str) else json.dumps(value)}"


def _fetches_mustard(profile: str, overrides: Mapping[str, Any], job: JobConfig) -> bool:
    if job.corpus == "auto":
        return not resolve(profile, overrides).data.root
    return job.corpus == "mustard"
