"""Which failures of an upload are tried again."""

import pytest
from prefect.states import Completed, Failed
from prefect.task_engine import TaskRunTimeoutError
from prefect.utilities.math import lower_clamp_multiple

from subtext.errors import PublishError, TrackingError
from subtext.publishing.hub import LONGEST_TRY_S
from subtext.publishing.uploads import UploadsError
from tasks.publishing import require_all, upload
from tasks.retry import (
    UPLOAD_BOUND_S,
    UPLOAD_DELAYS,
    UPLOAD_JITTER,
    can_retry,
    is_retryable,
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(PublishError("503", retryable=True), True, id="library-says-transient"),
        pytest.param(PublishError("403", retryable=False), False, id="library-says-final"),
        pytest.param(TaskRunTimeoutError("slow"), True, id="task-ran-out-of-time"),
        pytest.param(TimeoutError("slow"), True, id="socket-ran-out-of-time"),
        pytest.param(TrackingError("no MLflow"), False, id="not-an-upload"),
        pytest.param(KeyError("url"), False, id="defect"),
        pytest.param(None, False, id="no-error"),
    ],
)
def test_error_decides(error, expected):
    assert is_retryable(error) is expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(Failed(data=PublishError("503", retryable=True)), True, id="transient"),
        pytest.param(Failed(data=PublishError("403", retryable=False)), False, id="final"),
        pytest.param(Completed(data={"commit": "0" * 40}), False, id="completed"),
    ],
)
def test_prefect_condition_reads_the_exception_in_the_state(state, expected):
    assert can_retry(upload, None, state) is expected


@pytest.mark.parametrize(
    ("states", "said"),
    [
        pytest.param([Failed(), Completed()], "1 of 2 uploads failed; the rest landed.", id="some"),
        pytest.param([Failed(), Failed()], "2 of 2 uploads failed. Remove", id="all"),
    ],
)
def test_what_landed_is_said_only_where_something_did(states, said):
    named = {f"upload-{index}": state for index, state in enumerate(states)}
    with pytest.raises(UploadsError) as caught:
        require_all("/srv/runs/demo-7", named)
    assert str(caught.value).startswith(said)


def test_nothing_is_raised_when_all_landed():
    require_all("/srv/runs/demo-7", {"adapter": Completed()})


def test_the_upload_task_retries_as_stated():
    assert upload.retry_condition_fn is can_retry
    assert upload.retry_delay_seconds == UPLOAD_DELAYS
    assert upload.retry_jitter_factor == UPLOAD_JITTER


def test_the_tries_outlast_a_minute_of_absence():
    least = sum(UPLOAD_DELAYS) * lower_clamp_multiple(1 + UPLOAD_JITTER)
    assert least > 60
    assert upload.retries == len(UPLOAD_DELAYS)


def test_the_bound_counts_every_try_and_every_delay():
    longest_delays = sum(UPLOAD_DELAYS) * (1 + UPLOAD_JITTER)
    assert upload.timeout_seconds > LONGEST_TRY_S
    assert (upload.retries + 1) * upload.timeout_seconds + longest_delays == UPLOAD_BOUND_S
    assert UPLOAD_BOUND_S < 75 * 60
