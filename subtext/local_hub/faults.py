"""Trouble on demand for the local Hub, and a record of what clients asked for.

A fault meets the next `count` requests of one verb (a route's name: create, preupload, commit,
lfs_put, ...): it delays them, answers with an error status, cuts the connection before or after
the request took effect, or sends half of the answer, or a byte of it now and then.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send


class Fault(BaseModel):
    """One kind of trouble and how often it strikes."""

    model_config = ConfigDict(extra="forbid")

    verb: str = Field(description="Name of the route that fails.")
    repo: str = Field("*", description="namespace/name; *: any.")
    count: int = Field(1, ge=1, description="Requests that meet the fault before it is spent.")
    delay_s: float = Field(0, ge=0, le=3600, description="Seconds to wait first; 0: none.")
    status: int | None = Field(
        None, ge=400, le=599, description="Answer with this status and do nothing; null: off."
    )
    body: str | dict[str, Any] = Field(
        "fault switched on", description="Text or JSON that comes with the status."
    )
    retry_after: int | None = Field(
        None, ge=0, description="Retry-After header in seconds, with the status; null: none."
    )
    drop: Literal["before", "after"] | None = Field(
        None, description="Cut the connection before or after the request took effect."
    )
    truncate: bool = Field(
        False, description="Send the first half of the answer's body, then cut the connection."
    )
    trickle_s: float = Field(
        0, ge=0, le=60, description="Send the answer's body a byte at a time, so many seconds "
        "apart; 0: at once."
    )  # fmt: skip

    def answer(self) -> Response:
        """The error response that `status`, `body` and `retry_after` describe."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        kind = PlainTextResponse if isinstance(self.body, str) else JSONResponse
        return kind(self.body, status_code=self.status or 500, headers=headers)


class Cut(Response):
    """Promises a body and sends none: the server closes the connection under the client."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})


class Hampered(Response):
    """Sends what `inner` does, but half of it or byte by byte, as `fault` says."""

    def __init__(self, inner: Response, fault: Fault) -> None:
        super().__init__(status_code=inner.status_code)
        self._inner, self._fault = inner, fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def hampered(message: Message) -> None:
            if message["type"] != "http.response.body":
                await send(message)
                return
            body: bytes = message.get("body", b"")
            body = body[: len(body) // 2] if self._fault.truncate else body
            step = 1 if self._fault.trickle_s else max(len(body), 1)
            for start in range(0, len(body), step):
                part = body[start : start + step]
                await send({"type": message["type"], "body": part, "more_body": True})
                await asyncio.sleep(self._fault.trickle_s)
            if not self._fault.truncate:  # without an end the server cuts the connection
                await send({**message, "body": b""})

        await self._inner(scope, receive, hampered)


class Faults:
    """The faults that are switched on; safe to use from several threads."""

    def __init__(self, faults: list[Fault]) -> None:
        self._lock = threading.Lock()
        self._left = list(faults)

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._left.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._left.clear()

    def listed(self) -> list[dict[str, Any]]:
        """Faults with the strikes that are left."""
        with self._lock:
            return [fault.model_dump() for fault in self._left]

    def take(self, verb: str, repo: str) -> Fault | None:
        """Return the first fault that meets this request, and count the strike."""
        with self._lock:
            for index, fault in enumerate(self._left):
                if fault.verb == verb and fault.repo in ("*", repo):
                    left = fault.count - 1
                    spent = [fault.model_copy(update={"count": left})] if left else []
                    self._left[index : index + 1] = spent
                    return fault
        return None
