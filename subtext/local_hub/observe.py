"""What happens around every route: record the request, check its token, let a fault strike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from subtext.local_hub.faults import Cut, Fault, Hampered
from subtext.local_hub.store import HubError

Role = Literal["read", "write"]

USER = "local"
_NEED_TOKEN = {"whoami"}
_NEED_WRITE = {"create", "preupload", "lfs_batch", "lfs_verify", "commit"}


class ObservedRoute(APIRoute):
    """Records a request, checks its token, and lets a fault strike around the real handler."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def observed(request: Request) -> Response:
            state = request.app.state
            entry = {"verb": self.name, "authorization": "authorization" in request.headers}
            state.requests.append(entry)
            try:
                repo, files = await _subject(self.name, request)
                entry |= {"repo": repo, "files": files}
                _check_token(self.name, request)
                fault: Fault | None = state.faults.take(self.name, repo)
                response = await _struck(fault, lambda: handle(request))
            except HubError as error:
                response = refusal(error)
            entry["status"] = 0 if isinstance(response, Cut) else response.status_code
            return response

        return observed


async def _struck(
    fault: Fault | None, handle: Callable[[], Coroutine[Any, Any, Response]]
) -> Response:
    if fault is None:
        return await handle()
    await asyncio.sleep(fault.delay_s)
    if fault.drop == "before":
        return Cut()
    response = await handle() if fault.status is None else fault.answer()
    if fault.drop == "after":
        return Cut()
    return Hampered(response, fault) if fault.truncate or fault.trickle_s else response


async def _subject(verb: str, request: Request) -> tuple[str, list[str]]:
    """The repository a request is about, and the files it names."""
    values = request.path_params
    try:
        if verb == "create":
            body = await request.json()
            return f"{body.get('organization') or USER}/{body['name']}", []
        if verb == "preupload":
            files = [item["path"] for item in (await request.json())["files"]]
        elif verb == "commit":
            files = [item["value"]["path"] for item in json_lines(await request.body())[1:]]
        else:
            files = [values["path"]] if "path" in values else []
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HubError(400, f"{verb}: malformed request: {error!r}") from error
    return f"{values['namespace']}/{values['name']}" if "name" in values else "", files


def json_lines(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.splitlines() if line.strip()]


def _check_token(verb: str, request: Request) -> None:
    role = role_of(request)
    if role is None and verb in _NEED_TOKEN | _NEED_WRITE:
        raise HubError(401, "Invalid username or password.")
    if role == "read" and verb in _NEED_WRITE:
        raise HubError(403, "You don't have the rights to write here: this token only reads.")


def role_of(request: Request) -> Role | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if not scheme:
        return None
    roles: dict[str, Role] = request.app.state.tokens
    if scheme.lower() != "bearer" or token not in roles:
        raise HubError(401, "Invalid credentials in Authorization header")
    return roles[token]


def refusal(error: HubError) -> Response:
    headers = {"X-Error-Message": error.message.encode("ascii", "replace").decode()}
    if error.code:
        headers["X-Error-Code"] = error.code
    return JSONResponse({"error": error.message, **error.fields}, error.status, headers)
