"""huggingface_hub with limits, and with errors that say what to do.

The library waits for ever on a silent server, obeys any Retry-After, and loops without end when
repositories are being created at once. Inside `hub_calls` none of that happens, and every failure
becomes a `PublishError` that says whether another try can help.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from subtext.errors import PublishError

if TYPE_CHECKING:
    import httpx2

_SILENCE_S = 60.0
_CONNECT_S = 10.0
_SHOWN_CHARACTERS = 400
_RETRYABLE_STATUS = {408, 409, 412, 425, 429}

_REMEDIES = {
    401: "HF_TOKEN is missing, wrong or expired, or the repository is private to others: set "
    "HF_TOKEN to a token that may write there.",
    403: "HF_TOKEN may not write there: use a token with write access to that namespace, or "
    "publish elsewhere (publish.adapter_repo, publish.results_repo).",
    404: "There is no such repository, or HF_TOKEN may not see it: check the name in the "
    "configuration's section publish.",
    409: "Another operation is under way: the next try will find out.",
    412: "Somebody else committed meanwhile: the next try reads the new state first.",
    413: "It is too large for the Hub.",
    429: "The Hub's rate limit is reached: try again later.",
}
_NETWORK = "Check the network and HF_ENDPOINT."
_XET = (
    "Large files go through Xet storage, which not every endpoint has: if this repeats, set "
    "HF_HUB_DISABLE_XET=1."
)

_lock = threading.Lock()
_deadlines: dict[object, float] = {}


@contextmanager
def hub_calls(what: str, seconds: float) -> Iterator[None]:
    """Bound the Hub calls made inside to about `seconds` in all, 60 s of silence each.

    `what` starts the message of the PublishError that any failure becomes, such as "Publishing
    a.json to dataset you/results". Works across threads; see `_before`.
    """
    import httpx2

    call = object()
    with _lock:
        _install_limits()
        _deadlines[call] = time.monotonic() + seconds
    try:
        yield
    except (
        httpx2.HTTPError,
        httpx2.InvalidURL,
        OSError,
        ValueError,
        KeyError,
        RuntimeError,
    ) as error:
        raise explain(error, what) from error
    finally:
        with _lock:
            del _deadlines[call]


def explain(error: BaseException, what: str) -> PublishError:
    """Turn what huggingface_hub raised into a PublishError whose message has the remedy."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    cause = _cause(error)
    retryable, remedy = True, _NETWORK
    if isinstance(cause, OfflineModeIsEnabled):
        retryable, remedy = False, "Unset HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE to publish."
    elif isinstance(cause, HfHubHTTPError | httpx2.HTTPStatusError):
        status = cause.response.status_code
        retryable = status in _RETRYABLE_STATUS or status >= 500
        default = (
            "The Hub is in trouble: try again later." if retryable else "Trying again is no use."
        )
        remedy = _REMEDIES.get(status, default)
    elif isinstance(cause, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        retryable, remedy = False, "Set HF_ENDPOINT to a URL such as https://huggingface.co."
    elif isinstance(cause, KeyError | json.JSONDecodeError):
        remedy = "The answer was not the Hub's, as behind a failing gateway: try again later."
    elif isinstance(cause, ValueError):
        retryable, remedy = False, "The Hub refuses what was sent, so trying again is no use."
    elif not isinstance(cause, httpx2.TransportError):
        remedy = _XET
    shown = " ".join(f"{type(cause).__name__}: {cause}".split())[:_SHOWN_CHARACTERS]
    return PublishError(f"{what} failed: {shown.rstrip('.')}. {remedy}", retryable=retryable)


def _cause(error: BaseException) -> BaseException:
    """The error below the RuntimeErrors that the library wraps around failures of its threads."""
    while isinstance(error, RuntimeError) and error.__cause__ is not None:
        error = error.__cause__
    return error


@functools.cache
def _install_limits() -> None:
    """Give the library's shared HTTP client our hooks.

    Once a process: a second time would close the client under an upload in another thread.
    """
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils._http import default_client_factory

    def limited_client() -> httpx2.Client:
        client = default_client_factory()
        hooks = client.event_hooks
        client.event_hooks = {
            "request": [*hooks["request"], _before],
            "response": [*hooks["response"], _after],
        }
        return client

    set_client_factory(limited_client)


def _seconds_left() -> float | None:
    """Until the latest deadline of all uploads under way; None when there is none.

    Not one deadline a thread: the library uploads from threads of its own.
    """
    with _lock:
        return max(_deadlines.values()) - time.monotonic() if _deadlines else None


def _before(request: httpx2.Request) -> None:
    left = _seconds_left()
    if left is None:
        return
    if left <= 0:
        raise TimeoutError("the time for this is over")
    given = request.extensions.get("timeout", {})
    limits = {"connect": _CONNECT_S, "read": _SILENCE_S, "write": _SILENCE_S, "pool": _SILENCE_S}
    request.extensions["timeout"] = {
        name: min(limit, left, given.get(name) or limit) for name, limit in limits.items()
    }


def _after(response: httpx2.Response) -> None:
    left = _seconds_left()
    if left is None or response.is_success:
        return
    busy = b"another conflicting operation" in response.read()
    if _wait_s(response) > left or (busy and response.status_code == 409):
        response.raise_for_status()


def _wait_s(response: httpx2.Response) -> float:
    """Seconds that the server asks to wait, as the library reads its headers; 0: none."""
    from huggingface_hub.utils._http import parse_ratelimit_headers

    limit = parse_ratelimit_headers(response.headers)
    if response.status_code == 429 and limit is not None and limit.remaining == 0:
        return limit.reset_in_seconds
    asked = response.headers.get("Retry-After", "")
    return float(asked) if asked.isdigit() else 0.0
