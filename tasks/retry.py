"""Which failed uploads and downloads are worth another try, when, and for how long at most."""

from __future__ import annotations

from typing import Any

from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task

from subtext.errors import DownloadError, PublishError
from subtext.publishing.hub import LONGEST_TRY_S

# Together at least 75 s after jitter, so that a Hub may be away for a minute. Its hourly quota
# outlasts any wait that would be sensible here.
UPLOAD_DELAYS = [2.0, 8.0, 30.0, 60.0]
UPLOAD_RETRIES = len(UPLOAD_DELAYS)
UPLOAD_JITTER = 0.3

# The library ends a try by itself, with a message that says more; this is for what it can't end.
UPLOAD_TRY_S = LONGEST_TRY_S + 30

UPLOAD_BOUND_S = (UPLOAD_RETRIES + 1) * UPLOAD_TRY_S + sum(UPLOAD_DELAYS) * (1 + UPLOAD_JITTER)
"""Seconds after which an upload has landed or failed for good: about 75 minutes."""


def is_retryable(error: object) -> bool:
    """Whether running the task again can help after `error`.

    The library decides (`retryable`: 408, 409 busy, 412, 429, 5xx, network); a task that ran out
    of time is tried again. Anything else is a defect or a final refusal.
    """
    if isinstance(error, PublishError | DownloadError):
        return error.retryable
    return isinstance(error, TimeoutError)


def can_retry(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Prefect's `retry_condition_fn`: judge the exception inside the failed state."""
    return is_retryable(state.result(raise_on_failure=False))
