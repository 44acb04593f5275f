"""Upload a run's adapter and results to the Hugging Face Hub.

One call is one commit, of files on an allow-list, scanned for tokens. It reads the repository's
head first and sends only what differs, so a rerun with equal bytes makes no commit, also after a
commit whose answer got lost; and it compares hashes and sizes afterwards. Retrying is the
caller's: a PublishError says whether another try can help.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from subtext import strict_json
from subtext.config import PublishConfig
from subtext.errors import MachineError, Problem, PublishError
from subtext.publishing.client import hub_calls
from subtext.run_dir import RunDir

if TYPE_CHECKING:
    from huggingface_hub import HfApi

ResultName = Literal["trainer_state", "log_history", "held_out_eval"]

_REQUIRED = ("adapter_config.json", "adapter_model.safetensors", "subtext.json")
_OPTIONAL = ("tokenizer*", "special_tokens_map.json", "chat_template.jinja")
_TOKEN = re.compile(rb"(?<![A-Za-z0-9_])hf_[A-Za-z0-9]{20,}")
_LOCAL_PATH = re.compile(r"[/.~\\]|[A-Za-z]:|file:")
_MIN_SECRET_CHARACTERS = 16
_PREFLIGHT_S = 8.0
_BASE_S = 120.0
_SLOWEST_BYTES_PER_S = 250_000
_OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


@dataclass(frozen=True)
class _Target:
    repo_id: str
    repo_type: str
    private: bool

    def __str__(self) -> str:
        return f"{self.repo_type} {self.repo_id} on {_endpoint()}"

    @property
    def url(self) -> str:
        prefix = "" if self.repo_type == "model" else f"{self.repo_type}s/"
        return f"{_endpoint()}/{prefix}{self.repo_id}"


@dataclass(frozen=True)
class _File:
    """A file as it was when it was scanned; `git_id` is what git calls its content."""

    content: bytes
    sha256: str
    git_id: str

    @classmethod
    def of(cls, content: bytes) -> _File:
        git_id = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        return cls(content, hashlib.sha256(content).hexdigest(), git_id)


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
    token = environ.get("HF_TOKEN", "").strip()
    if not token:
        problems.append(_token_problem("", f"is not set, so nothing can be published to {targets}"))
    if problems:
        raise MachineError("Publishing refused", problems)
    return token


def check_access(publish: PublishConfig, token: str | None) -> None:
    """Ask the Hub, within seconds, whether `token` is valid and may write.

    A fine-grained token is only checked to be valid: what it may do is seen when it does it.
    Raises MachineError when it can't publish, PublishError when the Hub gives no answer.
    """
    if not publish.enabled:
        return
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if not token:
        raise MachineError("Publishing refused", [_token_problem("", "is not set")])
    fault = ""
    with hub_calls(f"Checking HF_TOKEN at {_endpoint()}", _PREFLIGHT_S):
        try:
            identity = HfApi(endpoint=_endpoint(), token=token).whoami()
        except HfHubHTTPError as error:
            if error.response.status_code not in (401, 403):
                raise
            fault = "is not accepted: it is wrong or expired"
        else:
            if identity.get("auth", {}).get("accessToken", {}).get("role") == "read":
                fault = "may only read"
    if fault:
        raise MachineError("Publishing refused", [_token_problem("(not shown)", fault)])


def publish_adapter(run: RunDir, publish: PublishConfig, token: str) -> dict[str, Any]:
    """Upload adapter, tokenizer and model card of `run` to `publish.adapter_repo`.

    Returns `repo_id, repo_type, revision` (commit id), `files` (path: sha256), `committed`
    (False when everything was there already) and `url`. Raises PublishError.
    """
    target = _Target(publish.adapter_repo, "model", publish.private)
    paths = {name: run.adapter / name for name in _REQUIRED}
    for pattern in _OPTIONAL:
        paths |= {path.name: path for path in sorted(run.adapter.glob(pattern)) if path.is_file()}
    paths["README.md"] = run.model_card
    files = _read(paths, target, token)
    _refuse_local_base(files["adapter_config.json"].content, target)
    return _publish(target, files, f"Adapter of run {run.run_id}", token)


def publish_result(
    run: RunDir, name: ResultName, publish: PublishConfig, token: str
) -> dict[str, Any]:
    """Upload one result file to `data/<name>_<run id>.json` of `publish.results_repo`.

    Returns and raises as `publish_adapter`.
    """
    target = _Target(publish.results_repo, publish.results_repo_type, publish.private)
    path = {
        "trainer_state": run.trainer_state,
        "log_history": run.log_history,
        "held_out_eval": run.held_out_eval,
    }[name]
    files = _read({f"data/{name}_{run.run_id}.json": path}, target, token)
    return _publish(target, files, f"{name} of run {run.run_id}", token)


def _publish(target: _Target, files: Mapping[str, _File], title: str, token: str) -> dict[str, Any]:
    from huggingface_hub import CommitOperationAdd, HfApi

    what = f"Publishing {', '.join(files)} to {target}"
    n_bytes = sum(len(file.content) for file in files.values())
    missing: list[str] = []
    with hub_calls(what, _BASE_S + n_bytes / _SLOWEST_BYTES_PER_S):
        api = HfApi(endpoint=_endpoint(), token=token)
        head = revision = _head(api, target)
        changed = _differences(api, target, head, files)
        if changed:
            revision = api.create_commit(
                target.repo_id,
                [CommitOperationAdd(path, files[path].content) for path in changed],
                commit_message=title,
                repo_type=target.repo_type,
            ).oid
            missing = _differences(api, target, revision, files)
    if missing:
        raise PublishError(
            f"{what}: at commit {revision} these differ from what was sent: "
            f"{', '.join(missing)}. The next try sends them again.",
            retryable=True,
        )
    return {
        "repo_id": target.repo_id,
        "repo_type": target.repo_type,
        "revision": revision,
        "files": {path: file.sha256 for path, file in files.items()},
        "committed": revision != head,
        "url": target.url,
    }


def _head(api: HfApi, target: _Target) -> str:
    """Commit id of the repository's head; the repository is made where it is missing."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        info = api.repo_info(target.repo_id, repo_type=target.repo_type)
    except RepositoryNotFoundError as error:
        if error.response.status_code != 404:
            raise
        api.create_repo(
            target.repo_id,
            repo_type=target.repo_type,
            private=target.private,
            space_sdk="docker" if target.repo_type == "space" else None,
            exist_ok=True,
        )
        info = api.repo_info(target.repo_id, repo_type=target.repo_type)
    return str(info.sha)


def _differences(
    api: HfApi, target: _Target, revision: str, files: Mapping[str, _File]
) -> list[str]:
    """Paths of `files` that are not, with these very bytes, in the repository at `revision`."""
    from huggingface_hub.hf_api import RepoFile

    tree = api.list_repo_tree(
        target.repo_id, recursive=True, revision=revision, repo_type=target.repo_type
    )
    there = {
        item.path: (item.lfs.sha256 if item.lfs else item.blob_id, item.size)
        for item in tree
        if isinstance(item, RepoFile)
    }
    return [
        path
        for path, file in files.items()
        if there.get(path)
        not in ((file.sha256, len(file.content)), (file.git_id, len(file.content)))
    ]


def _read(paths: Mapping[str, Path], target: _Target, token: str) -> dict[str, _File]:
    """Read the files once, so that what was scanned is what is sent. Raises PublishError."""
    missing = [str(path) for path in paths.values() if not path.is_file()]
    if not target.repo_id or missing:
        fault = f"{', '.join(missing)}: no such file" if missing else "no repository is configured"
        raise PublishError(
            f"Publishing to {target} refused: {fault}. Finish the run's earlier steps, and set "
            "publish.adapter_repo or publish.results_repo.",
            retryable=False,
        )
    files = {name: _File.of(path.read_bytes()) for name, path in paths.items()}
    for name, file in files.items():
        # A short token can only be a local Hub's, and might be any word.
        known = len(token) >= _MIN_SECRET_CHARACTERS and token.encode() in file.content
        if known or _TOKEN.search(file.content):
            raise PublishError(
                f"Publishing to {target} refused: {paths[name]} holds what looks like an access "
                "token (hf_…). Remove it from the file, and revoke the token if it is real.",
                retryable=False,
            )
    return files


def _refuse_local_base(adapter_config: bytes, target: _Target) -> None:
    name = strict_json.loads(adapter_config.decode("utf-8")).get("base_model_name_or_path") or ""
    if _LOCAL_PATH.match(name) or name.count("/") > 1 or ("/" in name and Path(name).is_dir()):
        problem = Problem(
            "adapter_config.json", "base_model_name_or_path", name,
            "is a path of this machine", "Write the Hub id of the base model there, or null.",
        )  # fmt: skip
        raise PublishError(f"Publishing to {target} refused: {problem}", retryable=False)


def _token_problem(shown: str, problem: str) -> Problem:
    return Problem(
        "environment", "HF_TOKEN", shown, problem,
        "Set HF_TOKEN to a token that may write, or leave publish.adapter_repo and "
        "publish.results_repo empty.",
    )  # fmt: skip


def _endpoint() -> str:
    # Read at each call: the library keeps what it saw when it was imported.
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
