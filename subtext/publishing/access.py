"""Before training: whose token it is, and whether it may write to each repository.

The Hub is asked without writing. It tells a token's owner, role, organisations and, of a
fine-grained token, the scopes; and whether a repository is there. What it does not tell, such as
the organisations on a Hub for rehearsals, stays unknown until something is written, and is no
reason to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from subtext.config import PublishConfig
from subtext.errors import MachineError, Problem
from subtext.publishing.client import endpoint, hub_calls, shown_endpoint

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_PREFLIGHT_S = 8.0
_OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_WRITING_ROLES = ("admin", "write", "contributor")
_WRITE = "repo.write"


@dataclass(frozen=True)
class TargetAccess:
    """A repository of the configuration's field `field`. `may_write`: None where only a write
    will tell; `why` says in words."""

    field: str
    repo_id: str
    repo_type: str
    exists: bool
    may_write: bool | None
    why: str


@dataclass(frozen=True)
class Access:
    """Who `HF_TOKEN` is to the Hub: its name, its role there, and what it may do to each target."""

    name: str
    role: str
    targets: tuple[TargetAccess, ...]

    def as_json(self) -> dict[str, Any]:
        targets = [asdict(target) for target in self.targets]
        return {"name": self.name, "role": self.role, "targets": targets}


def require_token(publish: PublishConfig, environ: Mapping[str, str]) -> str | None:
    """Return `HF_TOKEN` where something is to be published, else None.

    Raises MachineError, before anything is trained, without a token or in offline mode.
    """
    if not publish.enabled:
        return None
    targets = " and ".join(filter(None, (publish.adapter_repo, publish.results_repo)))
    problems = [
        Problem(
            "environment", name, environ[name], f"forbids publishing to {targets}",
            "Unset it, or leave publish.adapter_repo and publish.results_repo empty.",
        )
        for name in _OFFLINE_VARIABLES
        if environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"}
    ]  # fmt: skip
    problems += endpoint_problems(environ)
    token = environ.get("HF_TOKEN", "").strip()
    if token and not (token.isascii() and token.isprintable()):
        problems.append(_token_problem("(not shown)", "holds characters that no token has"))
    if not token:
        problems.append(_token_problem("", f"is not set, so nothing can be published to {targets}"))
    if problems:
        raise MachineError("Publishing refused", problems)
    return token


def endpoint_problems(environ: Mapping[str, str]) -> list[Problem]:
    """What is wrong with HF_ENDPOINT, which huggingface_hub reads when it is imported."""
    address = environ.get("HF_ENDPOINT", "")
    try:
        parts = urlsplit(address)
        known = not address or (parts.scheme in ("http", "https") and parts.hostname)
        port = parts.port
    except ValueError:
        known, port = False, None
    if known and port != 0:
        return []
    return [
        Problem(
            "environment", "HF_ENDPOINT", re.sub("//[^/]*@", "//", address),
            "is no http:// or https:// address",
            "Unset it, or set it to a URL such as https://huggingface.co.",
        )
    ]  # fmt: skip


def check_access(publish: PublishConfig, token: str | None) -> Access | None:
    """Ask the Hub, within seconds, whether `token` is valid and may write to each target.

    None where nothing is published. Raises MachineError with every target that it can't write to,
    PublishError when the Hub gives no answer.
    """
    if not publish.enabled:
        return None
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if not token:
        raise MachineError("Publishing refused", [_token_problem("", "is not set")])
    fault, access = "", Access("", "", ())
    with hub_calls(f"Checking HF_TOKEN at {shown_endpoint()}", _PREFLIGHT_S):
        api = HfApi(endpoint=endpoint(), token=token)
        try:
            identity = api.whoami()
        except HfHubHTTPError as error:
            if error.response.status_code not in (401, 403):
                raise
            fault = "is not accepted: it is wrong or expired"
        else:
            if _role(identity) == "read":
                fault = "may only read"
            else:
                access = _access(api, identity, publish)
    if fault:
        raise MachineError("Publishing refused", [_token_problem("(not shown)", fault)])
    if problems := list(access_problems(access)):
        raise MachineError("Publishing refused", problems)
    return access


def access_problems(access: Access) -> Iterator[Problem]:
    """Yield each target that can't be written to."""
    for target in access.targets:
        if target.may_write is False:
            yield Problem(
                "configuration", f"publish.{target.field}", target.repo_id,
                f"can't be written to with this HF_TOKEN: {target.why}",
                "Use a token with write access there, or name another repository.",
            )  # fmt: skip


def write_right(
    identity: Mapping[str, Any], repo_id: str, repo_type: str, *, exists: bool
) -> tuple[bool | None, str]:
    """Say from the answer to whoami whether its token may write to `repo_id`, and why.

    None where the answer does not say.
    """
    namespace, name = repo_id.partition("/")[0], identity.get("name", "")
    if _role(identity) == "fineGrained":
        scopes = identity["auth"]["accessToken"].get("fineGrained", {}).get("scoped")
        if scopes is None:
            return None, "the Hub does not tell the scopes of this token"
        return _scoped(scopes, repo_id, repo_type, exists)
    if namespace == name:
        return True, f"it is {name}'s own"
    return _as_member(identity, namespace)


def _as_member(identity: Mapping[str, Any], namespace: str) -> tuple[bool | None, str]:
    name, organisations = identity.get("name", ""), identity.get("orgs")
    if organisations is None:
        return None, f"the Hub does not tell the organisations of {name}"
    roles = {each.get("name"): each.get("roleInOrg") for each in organisations}
    if namespace not in roles:
        return False, f"{name} is not a member of {namespace}"
    if roles[namespace] is None:
        return None, f"the Hub does not tell the role of {name} in {namespace}"
    may_write = roles[namespace] in _WRITING_ROLES
    return may_write, f"{name} has the role {roles[namespace]!r} in {namespace}"


def _scoped(
    scopes: list[dict[str, Any]], repo_id: str, repo_type: str, exists: bool
) -> tuple[bool, str]:
    namespace = repo_id.partition("/")[0]
    for scope in scopes:
        entity = scope.get("entity", {})
        if _WRITE not in scope.get("permissions", ()):
            continue
        if entity.get("type") in ("user", "org") and entity.get("name") == namespace:
            return True, f"its scopes include {_WRITE} on {namespace}"
        if entity.get("type") == repo_type and entity.get("name") == repo_id:
            if exists:
                return True, f"its scopes include {_WRITE} on {repo_id}"
            return False, f"its scopes include {_WRITE} on {repo_id}, which it can't create"
    return False, f"no scope of it includes {_WRITE} on {namespace} or {repo_id}"


def _access(api: HfApi, identity: Mapping[str, Any], publish: PublishConfig) -> Access:
    targets = []
    for field, repo_id, repo_type in (
        ("adapter_repo", publish.adapter_repo, "model"),
        ("results_repo", publish.results_repo, publish.results_repo_type),
    ):
        if repo_id:
            exists = api.repo_exists(repo_id, repo_type=repo_type)
            may_write, why = write_right(identity, repo_id, repo_type, exists=exists)
            targets.append(TargetAccess(field, repo_id, repo_type, exists, may_write, why))
    return Access(str(identity.get("name", "")), _role(identity), tuple(targets))


def _role(identity: Mapping[str, Any]) -> str:
    return str(identity.get("auth", {}).get("accessToken", {}).get("role", ""))


def _token_problem(shown: str, problem: str) -> Problem:
    return Problem(
        "environment", "HF_TOKEN", shown, problem,
        "Set HF_TOKEN to a token that may write, or leave publish.adapter_repo and "
        "publish.results_repo empty.",
    )  # fmt: skip
