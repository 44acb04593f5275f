"""Which failures of an upload are tried again."""

import pytest
from prefect.states import Completed, Failed
from prefect.task_engine import TaskRunTimeoutError

from subtext.errors import PublishError, TrackingError
from subtext.publishing.uploads import UploadsError
from tasks.publishing import require_all, upload
from tasks.retry import can_retry, is_retryable


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


def test_upload_task_backs_off_exponentially():
    assert upload.retry_delay_seconds == [2, 4, 8, 16]
    assert upload.retry_jitter_factor > 0
    assert upload.retry_condition_fn is can_retry
    assert upload.timeout_seconds
