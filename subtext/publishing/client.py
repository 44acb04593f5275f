"""huggingface_hub with limits, and with errors that say what to do.

The library waits for ever on a silent server or one that sends a byte now and then, obeys any
Retry-After in some calls and none in others, and loops without end when repositories are being
created at once. Inside `hub_calls` none of that happens, and every failure becomes a
`PublishError` that says whether another try can help and never shows a secret.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from subtext.errors import PublishError
from subtext.secrets_scan import known_secrets, redact

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

LONGEST_WAIT_S = 300  # the windows in which the Hub counts requests are this long
_SILENCE_S = 60.0
_CONNECT_S = 10.0
_GUARD_S = 0.5
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

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_under_way: set[HubCalls] = set()
_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


class HubCalls:
    """Hub calls under way, which must be over by `deadline` (on the monotonic clock)."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds

    def patiently(self, send: Callable[[], T]) -> T:
        """Return `send()`; where the Hub asks to wait, wait so long and send once more.

        Once, and for at most LONGEST_WAIT_S, which come on top of the time for the calls.
        """
        import httpx2
        from huggingface_hub.errors import HfHubHTTPError

        try:
            return send()
        except (HfHubHTTPError, httpx2.HTTPStatusError) as error:
            wait_s = _wait_s(error.response)
            if not 0 < wait_s <= LONGEST_WAIT_S or not _is_retryable(error.response.status_code):
                raise
        logger.warning("the Hub asks to wait %.0f s before the next request", wait_s)
        self.deadline += wait_s
        time.sleep(wait_s)
        return send()


@contextmanager
def hub_calls(what: str, seconds: float) -> Iterator[HubCalls]:
    """End the Hub calls made inside after `seconds` in all, whatever the Hub does.

    A minute of silence ends them too. `what` starts the message of the PublishError that any
    failure becomes, such as "Publishing a.json to dataset you/results". Works across threads; of
    several at once, the one with the most time left decides.
    """
    import httpx2

    calls, ended = HubCalls(seconds), threading.Event()
    with _lock:
        _install_limits()
        _under_way.add(calls)
    threading.Thread(target=_cut_when_over, args=(ended,), daemon=True).start()
    try:
        yield calls
    except (
        httpx2.HTTPError,
        httpx2.InvalidURL,
        OSError,
        ValueError,
        KeyError,
        RuntimeError,
    ) as error:
        cause = error
        if time.monotonic() >= calls.deadline:
            cause = TimeoutError(f"it took longer than {calls.seconds:.0f} s")
        said = str(_cause(error))
        # A server that repeats what it was sent has put the token into its message.
        shown = _without_secrets(said) == said
        raise explain(cause, what) from (error if shown else None)
    finally:
        ended.set()
        with _lock:
            _under_way.remove(calls)


def explain(error: BaseException, what: str) -> PublishError:
    """Turn what huggingface_hub raised into a PublishError whose message has the remedy."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    cause = _cause(error)
    retryable, remedy = True, _NETWORK
    if isinstance(cause, OfflineModeIsEnabled):
        retryable, remedy = False, "Unset HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE to publish."
    elif isinstance(cause, HfHubHTTPError | httpx2.HTTPStatusError):
        retryable, remedy = _after_status(cause.response)
    elif isinstance(cause, TimeoutError):
        remedy = f"The Hub is too slow or hangs: try again later. {_NETWORK}"
    elif isinstance(cause, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        retryable, remedy = False, "Set HF_ENDPOINT to a URL such as https://huggingface.co."
    elif isinstance(cause, KeyError | json.JSONDecodeError):
        remedy = "The answer was not the Hub's, as behind a failing gateway: try again later."
    elif isinstance(cause, ValueError):
        retryable, remedy = False, "The Hub refuses what was sent, so trying again is no use."
    said = " ".join(_without_secrets(f"{type(cause).__name__}: {cause}").split())
    shown = said[:_SHOWN_CHARACTERS].rstrip(".")
    return PublishError(f"{what} failed: {shown}. {remedy}", retryable=retryable)


def _without_secrets(text: str) -> str:
    return redact(text, known_secrets(os.environ))


def _after_status(response: httpx2.Response) -> tuple[bool, str]:
    """Whether another try can help after this answer, and what to do."""
    status, wait_s = response.status_code, _wait_s(response)
    if not _is_retryable(status):
        return False, _REMEDIES.get(status, "Trying again is no use.")
    if wait_s > LONGEST_WAIT_S:
        return False, (
            f"The Hub asks to wait {wait_s:.0f} s, longer than an upload waits "
            f"({LONGEST_WAIT_S} s): repeat the upload after that."
        )
    return True, _REMEDIES.get(status, "The Hub is in trouble: try again later.")


def _is_retryable(status: int) -> bool:
    return status in _RETRYABLE_STATUS or status >= 500


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
        if not _under_way:
            return None
        return max(calls.deadline for calls in _under_way) - time.monotonic()


def _cut_when_over(ended: threading.Event) -> None:
    """Shut the connections once the time is over, until `ended`.

    The client's own limits are per read and write, so a byte now and then would keep it waiting.
    """
    left = _seconds_left()
    while left is not None and not ended.wait(max(left, _GUARD_S)):
        left = _seconds_left()
        if left is not None and left <= 0:
            with _lock:
                connections = list(_sockets)
            for connection in connections:
                with suppress(OSError):
                    # Not SSLSocket's own, which drops the encryption before it shuts.
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _remember_connection(event: str, info: dict[str, Any]) -> None:
    """httpcore's `trace`: keep the socket of each connection that is made."""
    if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
        with _lock:
            _sockets.add(info["return_value"].get_extra_info("socket"))


def _before(request: httpx2.Request) -> None:
    request.extensions["trace"] = _remember_connection
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


def endpoint() -> str:
    """The Hub's address, without a slash at its end."""
    # Read at each call: the library keeps what it saw when it was imported.
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def shown_endpoint() -> str:
    """As `endpoint`, without user and password."""
    return re.sub("//[^/]*@", "//", endpoint())
