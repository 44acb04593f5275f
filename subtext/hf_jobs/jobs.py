"""Hugging Face Jobs: start one, find it again, read its log to its true end, cancel it, its price.

Failures become JobError, which says whether another try can help; how a job ended is no failure
but an answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from subtext.errors import MachineError, Problem, PublishError
from subtext.hf_jobs.plan import RUN_LABEL, SPEC_LABEL, PlannedJob
from subtext.publishing.client import endpoint, hub_calls
from subtext.secrets_scan import redact

if TYPE_CHECKING:
    from huggingface_hub import HfApi

COMPLETED = "COMPLETED"
_ENDED = (COMPLETED, "CANCELED", "ERROR", "DELETED")
_CALL_S = 60.0
_STREAM_S = 7 * 86_400.0
_LONGEST_WAIT_S = 30.0
_LINE_CHARACTERS = 2_000
_MAX_LINES = 20_000
_LAST_LINES = 20
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_REMEDIES = {
    401: "HF_TOKEN is wrong or expired: set one that may run jobs.",
    402: "Jobs are paid for: add credits or a paid plan to the namespace (job.namespace).",
    403: "HF_TOKEN may not run jobs there: give it that right, or set job.namespace.",
    404: "The Hub knows no such job or namespace, or HF_TOKEN may not see it.",
}


class JobError(PublishError):
    """A job could not be started, watched or cancelled."""

    def __reduce__(self) -> tuple[object, ...]:
        return _job_error, (str(self), self.retryable)


def _job_error(message: str, retryable: bool) -> JobError:
    return JobError(message, retryable=retryable)


@dataclass(frozen=True)
class Ended:
    """How a job ended: one of the Hub's stages, its own words, and the last lines of its log."""

    url: str
    stage: str
    message: str
    last_lines: tuple[str, ...]


def user_of(token: str) -> str:
    """Return the name of the token's user. Raises JobError where the Hub does not accept it."""
    with job_calls("Asking the Hub whose HF_TOKEN is", _CALL_S):
        return str(_api(token).whoami()["name"])


def price_per_hour(flavor: str, token: str | None = None) -> float:
    """Return what an hour of `flavor` costs, in US dollars.

    Raises MachineError where the Hub does not list it, JobError where it gives no answer.
    """
    with job_calls("Asking for the prices of Hugging Face Jobs", _CALL_S):
        listed = {item.name: item for item in _api(token).list_jobs_hardware()}
    units_an_hour = {"minute": 60, "hour": 1}
    if flavor not in listed or listed[flavor].unit_label not in units_an_hour:
        problem = Problem(
            "Hugging Face Jobs", "flavor", flavor, "is no hardware that the Hub lists with a price",
            f"Choose one of {', '.join(sorted(listed))}.",
        )  # fmt: skip
        raise MachineError("Hardware refused", [problem])
    return float(listed[flavor].unit_cost_usd) * units_an_hour[listed[flavor].unit_label]


def submit(plan: PlannedJob, secrets: Mapping[str, str], token: str) -> str:
    """Start the job and return its id, or the id of the one that this plan started before.

    Asking twice therefore starts one job: also after a lost reply, and after the process that
    watched it died. One that failed or was cancelled is started anew. Raises JobError, also where
    another plan's job is at work on the same run.
    """
    with job_calls(f"Starting the job of run {plan.run_id} in {plan.namespace}", _CALL_S):
        known = list(
            _api(token).list_jobs(labels={RUN_LABEL: plan.run_id}, namespace=plan.namespace)
        )
        for job in known:
            ours = (job.labels or {}).get(SPEC_LABEL) == plan.labels[SPEC_LABEL]
            if not ours and job.status.stage not in _ENDED:
                raise JobError(
                    f"{job.url} is at work on run {plan.run_id}, with other settings or code. "
                    f"Wait for it, cancel it (`hf jobs cancel {job.id}`), or choose another "
                    "training.run_id.",
                    retryable=False,
                )
            if ours and job.status.stage not in set(_ENDED) - {COMPLETED}:
                return job.id
        started = _api(token).run_job(
            image=plan.image, command=list(plan.command), env=dict(plan.env),
            secrets=dict(secrets), flavor=plan.flavor, timeout=plan.timeout_s,
            labels=plan.labels, namespace=plan.namespace,
        )  # fmt: skip
        return started.id


def follow(
    plan: PlannedJob,
    job_id: str,
    token: str,
    say: Callable[[str], None],
    *,
    secrets: Mapping[str, str],
    patience_s: float = 1_800,
) -> Ended:
    """Say each line of the job's log once, until the job has ended, and return how.

    A broken stream and a Hub that is away are waited for, up to `patience_s` seconds without any
    sign of it; the job runs on meanwhile. Lines are cut to 2,000 characters and the log to 20,000
    lines; values of `secrets` and tokens of the Hub are blotted out. Raises JobError.
    """
    log = _Log(say, tuple(secrets.values()))
    failing_since, n_failures = 0.0, 0
    while True:
        n_before = log.n_lines
        try:
            with job_calls(f"Following the job {job_id} of run {plan.run_id}", _STREAM_S):
                api = _api(token)
                job = api.inspect_job(job_id=job_id, namespace=plan.namespace)
                n_failures = 0
                # The stream starts from the log's first line each time.
                lines = api.fetch_job_logs(job_id=job_id, namespace=plan.namespace, follow=True)
                for line in islice(lines, n_before, None):
                    log.add(line)
            # The library takes a stream that was cut for whole where the job ended meanwhile: hence
            # once more, until no line is new.
            if job.status.stage in _ENDED and log.n_lines == n_before:
                stage, message = str(job.status.stage), job.status.message or ""
                return Ended(job.url, stage, message, tuple(log.last))
        except JobError as error:
            if not n_failures:
                failing_since = time.monotonic()
            if not error.retryable or time.monotonic() - failing_since > patience_s:
                raise
            if not n_failures:
                say(f"[no answer from the Hub, trying again: {error}]")
            time.sleep(min(_LONGEST_WAIT_S, 2.0 ** min(n_failures, 5)))
            n_failures += 1


def cancel(plan: PlannedJob, token: str, seconds: float = 20) -> list[str]:
    """Cancel what this plan started and has not ended; return the ids.

    Tries for `seconds`. Raises JobError with the command that cancels by hand.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            with job_calls(f"Cancelling the job of run {plan.run_id}", max(left, 1.0)):
                api = _api(token)
                found = [
                    job.id
                    for job in api.list_jobs(labels=plan.labels, namespace=plan.namespace)
                    if job.status.stage not in _ENDED
                ]
                for job_id in found:
                    api.cancel_job(job_id=job_id, namespace=plan.namespace)
                return found
        except JobError as error:
            if not error.retryable or time.monotonic() + 1 > deadline:
                by_hand = f"`hf jobs ps --namespace {plan.namespace}`, then `hf jobs cancel`"
                raise JobError(f"{error} It may still run: {by_hand}.", retryable=False) from error
            time.sleep(1)


@contextmanager
def job_calls(what: str, seconds: float) -> Iterator[None]:
    """`hub_calls`, with remedies that speak of jobs."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        with hub_calls(what, seconds):
            yield
    except JobError:
        raise
    except PublishError as error:
        cause = error.__cause__
        status = cause.response.status_code if isinstance(cause, HfHubHTTPError) else 0
        if status in _REMEDIES:
            said = f"{what} failed: HTTP {status}. {_REMEDIES[status]}"
            raise JobError(said, retryable=False) from error
        raise JobError(str(error), retryable=error.retryable) from error


@dataclass
class _Log:
    """What was read of a log, cut to a bearable size and without secrets."""

    say: Callable[[str], None]
    secrets: tuple[str, ...]
    n_lines: int = 0
    last: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        shown = self._shown(line)
        self.n_lines += 1
        self.last = [*self.last, shown][-_LAST_LINES:]
        if self.n_lines <= _MAX_LINES:
            self.say(shown)
        elif self.n_lines == _MAX_LINES + 1:
            self.say(f"[more than {_MAX_LINES:,} lines: the rest is in the job's own log]")

    def _shown(self, line: str) -> str:
        # Of a bar that a program draws over and over, its last state.
        text = _ANSI.sub("", line.rstrip("\r\n").rpartition("\r")[2])
        text = redact(text, self.secrets)
        cut = text[:_LINE_CHARACTERS]
        return cut if cut == text else f"{cut}… ({len(text):,} characters)"


def _api(token: str | None) -> HfApi:
    from huggingface_hub import HfApi

    return HfApi(endpoint=endpoint(), token=token)
