"""Train on Hugging Face Jobs: start the job, be where its log goes, end it with the flow run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger
from pydantic import BaseModel

from subtext.errors import MachineError, Problem, TrainingError
from subtext.hf_jobs import jobs
from subtext.hf_jobs.archive import NothingArchivedError
from subtext.hf_jobs.bring_back import bring_back as bring_back_run
from subtext.hf_jobs.config import TOKEN, JobConfig
from subtext.hf_jobs.plan import PlannedJob
from subtext.hf_jobs.prepare import prepare_job as plan_of_job
from subtext.prepare import run_directory
from subtext.profiles import resolve
from tasks.artifacts import show_evaluation, show_leaks
from tasks.retry import UPLOAD_DELAYS, UPLOAD_JITTER, UPLOAD_RETRIES, can_retry
from tasks.run_id import default_run_id
from tasks.secrets import block_name, secret

_RETRIED = {
    "retries": UPLOAD_RETRIES,
    "retry_delay_seconds": UPLOAD_DELAYS,
    "retry_jitter_factor": UPLOAD_JITTER,
    "retry_condition_fn": can_retry,
}


@task(name="prepare job", cache_policy=NO_CACHE)
def prepare_job(profile: str, overrides: BaseModel, job: JobConfig) -> PlannedJob:
    """Refuse in seconds what can't work from here; machine and data are the job's to check."""
    knobs = overrides.model_dump(exclude_none=True)
    token = _secrets((TOKEN, *job.secrets))[TOKEN]
    plan, price = plan_of_job(profile, knobs, job, token, default_run_id(profile))
    get_run_logger().info(
        "run %s on %s: %.2f US dollars an hour, at most %.2f; commit %s; comes back through "
        "dataset %s",
        plan.run_id, plan.flavor, price, price * plan.timeout_s / 3600,
        plan.commit or f"of the image {plan.image}", plan.archive_repo,
    )  # fmt: skip
    return plan


@task(name="submit job", cache_policy=NO_CACHE, **_RETRIED)
def submit_job(plan: PlannedJob) -> str:
    """Start the job, or find the one that an earlier try of this run started; return its id."""
    secrets = _secrets(plan.secrets)
    return jobs.submit(plan, secrets, secrets[TOKEN])


@task(name="follow job", cache_policy=NO_CACHE)
def follow_job(plan: PlannedJob, job_id: str) -> dict[str, Any]:
    """Lead the job's log into the run's, until it has ended; return its stage and last words."""
    secrets = _secrets(plan.secrets)
    logger = get_run_logger()
    logger.info("job %s of %s", job_id, plan.namespace)
    ended = jobs.follow(plan, job_id, secrets[TOKEN], logger.info, secrets=secrets)
    logger.info("%s ended: %s %s", ended.url, ended.stage, ended.message)
    return {
        "url": ended.url, "stage": ended.stage, "message": ended.message,
        "last_lines": list(ended.last_lines),
    }  # fmt: skip


@task(name="bring back", cache_policy=NO_CACHE, **_RETRIED)
def bring_back(profile: str, overrides: BaseModel, plan: PlannedJob, ended: dict[str, Any]) -> str:
    """Download what the job left of the run directory, check it, and return its path.

    Raises TrainingError where it left nothing because it failed.
    """
    config = resolve(profile, overrides.model_dump(exclude_none=True))
    run = run_directory(config, plan.run_id)
    try:
        revision = bring_back_run(run, config, plan.archive_repo, _secrets((TOKEN,))[TOKEN])
    except NothingArchivedError:
        if failed := _failure(ended):
            raise failed from None
        raise
    get_run_logger().info(
        "%s is commit %s of dataset %s, folder %s",
        run.path, revision, plan.archive_repo, plan.run_id,
    )  # fmt: skip
    if run.leak_report.exists():
        show_leaks(run)
    if run.metrics.exists():
        show_evaluation(run)
    return str(run.path)


@contextmanager
def job_of_flow(plan: PlannedJob) -> Iterator[None]:
    """Cancel the job where the flow run is cancelled, interrupted or fails inside the block.

    No task from here on: Prefect gives a cancelled process seconds.
    """
    try:
        yield
    except BaseException:
        logger = get_run_logger()
        try:
            for job_id in jobs.cancel(plan, _secrets((TOKEN,))[TOKEN]):
                logger.warning("job %s is cancelled", job_id)
        except jobs.JobError as error:
            logger.error("The job was not cancelled. %s", error)
        raise


def require_completed(ended: dict[str, Any]) -> None:
    """Raise TrainingError unless the job itself ended well."""
    if failed := _failure(ended):
        raise failed


def _failure(ended: dict[str, Any]) -> TrainingError | None:
    if ended["stage"] == jobs.COMPLETED:
        return None
    last = "\n".join(ended["last_lines"])
    return TrainingError(
        f"{ended['url']} ended {ended['stage']}: {ended['message'] or 'no reason given'}. Its last "
        f"lines:\n{last}"
    )


def _secrets(names: tuple[str, ...]) -> dict[str, str]:
    """Their values by name. Raises MachineError that names the missing ones."""
    values = {name: secret(name) for name in names}
    missing = [
        Problem(
            "environment", name, "", "is not set, and the job needs it",
            f"Set it for the worker, or store a Secret block {block_name(name)!r}.",
        )
        for name, value in values.items()
        if not value
    ]  # fmt: skip
    if missing:
        raise MachineError("Job refused", missing)
    return values
