"""Which failed uploads and downloads are worth another try, and when."""

from __future__ import annotations

from typing import Any

from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task, exponential_backoff

from subtext.errors import DownloadError, PublishError

# 2, 4, 8, 16 s before jitter. The Hub's hourly quota outlasts any wait that would be sensible here.
UPLOAD_RETRIES = 4
UPLOAD_DELAYS = exponential_backoff(backoff_factor=2)
UPLOAD_JITTER = 0.5


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
