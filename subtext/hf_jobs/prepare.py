"""The first step of a run that a job will train: refuse in seconds what can't work from here.

Machine and data are the job's to check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subtext.hf_jobs.bring_back import check_free
from subtext.hf_jobs.config import JobConfig
from subtext.hf_jobs.jobs import price_per_hour, user_of
from subtext.hf_jobs.plan import PlannedJob, plan_job
from subtext.prepare import run_directory
from subtext.profiles import resolve
from subtext.publishing.access import check_access
from subtext.tracking import check_reachable, tracking_uri


def prepare_job(
    profile: str, overrides: Mapping[str, Any], job: JobConfig, token: str, default_run_id: str
) -> tuple[PlannedJob, float]:
    """Return the job, and what an hour of its hardware costs in US dollars; start nothing.

    Raises ConfigError, MachineError, PublishError or TrackingError.
    """
    config = resolve(profile, overrides)
    check_access(config.publish, token)
    check_reachable(tracking_uri())
    run = run_directory(config, default_run_id)
    check_free(run, config)
    plan = plan_job(profile, overrides, job, run.run_id, job.namespace or user_of(token))
    return plan, price_per_hour(plan.flavor, token)
