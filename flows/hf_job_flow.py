"""Flow `subtext` again, trained on Hugging Face Jobs instead of this machine.

Deployed as `subtext/train-hf-job` (prefect.yaml). The job trains and judges; what it made comes
back through a private dataset, and is registered and published from here.
"""

from __future__ import annotations

from prefect import flow

from subtext.config import Overrides
from subtext.hf_jobs.config import JobConfig
from subtext.profiles import Profile
from tasks.hf_job import (
    bring_back,
    follow_job,
    job_of_flow,
    prepare_job,
    require_completed,
    submit_job,
)
from tasks.publishing import require_all, upload_missing, write_card
from tasks.tracking import finish, log_results, pass_gate, register, tracked


@flow(name="subtext")
def hf_job_flow(
    profile: Profile = Profile.t4,
    overrides: Overrides = Overrides(),  # noqa: B008
    job: JobConfig = JobConfig(),  # noqa: B008
) -> str:
    """Train a judge of sarcasm as `train_flow` does, on the hardware that `job` names.

    Returns the run directory on this machine.
    """
    plan = prepare_job(profile, overrides, job)
    with job_of_flow(plan):
        ended = follow_job(plan, submit_job(plan))
    run = bring_back(profile, overrides, plan, ended)
    with tracked(run):
        require_completed(ended)
        write_card(run)
        log_results(run)
        register(run)
        pass_gate(run)
        uploads = upload_missing(run)
        finish(run)
        require_all(run, uploads)
    return run
