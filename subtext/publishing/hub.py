"""Upload a run's adapter and results to the Hugging Face Hub.

One call is one commit, of files on an allow-list, scanned for secrets and paths. It reads the
repository's head first and sends only what differs, onto that very head: a rerun with equal bytes
makes no commit, whether the answer to the first got lost or the first is still on its way. It
compares hashes and sizes afterwards. Retrying is the caller's: a PublishError says whether another
try can help.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from subtext import strict_json
from subtext.config import PublishConfig
from subtext.errors import Problem, PublishError
from subtext.policy.adapter_record import ADAPTER_RECORD, SHAPE, WEIGHTS
from subtext.publishing.client import LONGEST_WAIT_S, endpoint, hub_calls, shown_endpoint
from subtext.publishing.scan import why_not_publish
from subtext.run_dir import RunDir

if TYPE_CHECKING:
    from huggingface_hub import HfApi

ResultName = Literal["trainer_state", "log_history", "held_out_eval"]

_REQUIRED = (SHAPE, WEIGHTS, ADAPTER_RECORD)
_OPTIONAL = ("tokenizer*", "special_tokens_map.json", "chat_template.jinja")
_LOCAL_PATH = re.compile(r"[/.~\\]|[A-Za-z]:|file:")
_SLOWEST_BYTES_PER_S = 250_000

BASE_S = 120.0
_SHOWN_FILES = 10
"""Seconds that one try may take beside the time its bytes need, at 250 kB/s or faster."""

_LONGEST_SEND_S = 540.0
LONGEST_TRY_S = _LONGEST_SEND_S + LONGEST_WAIT_S
"""Seconds after which one try is over, whatever its size and however long the Hub asks to wait."""


@dataclass(frozen=True)
class Target:
    repo_id: str
    repo_type: str
    private: bool

    def __str__(self) -> str:
        return f"{self.repo_type} {self.repo_id} on {shown_endpoint()}"

    @property
    def url(self) -> str:
        prefix = "" if self.repo_type == "model" else f"{self.repo_type}s/"
        return f"{shown_endpoint()}/{prefix}{self.repo_id}"


@dataclass(frozen=True)
class File:
    """A file as it was when it was scanned; `git_id` is what git calls its content."""

    content: bytes
    sha256: str
    git_id: str

    @classmethod
    def of(cls, content: bytes) -> File:
        git_id = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        return cls(content, hashlib.sha256(content).hexdigest(), git_id)


def publish_adapter(
    run: RunDir, publish: PublishConfig, token: str, base_s: float = BASE_S
) -> dict[str, Any]:
    """Upload adapter, tokenizer and model card of `run` to `publish.adapter_repo`.

    Returns `repo_id, repo_type, revision` (commit id), `files` (path: sha256), `committed`
    (False when everything was there already) and `url`. Raises PublishError.
    """
    target = Target(publish.adapter_repo, "model", publish.private)
    paths = {name: run.adapter / name for name in _REQUIRED}
    for pattern in _OPTIONAL:
        paths |= {path.name: path for path in sorted(run.adapter.glob(pattern)) if path.is_file()}
    paths["README.md"] = run.model_card
    _refuse_local_base(paths[SHAPE], target)
    files = _read(paths, target, run, token)
    return commit_files(target, files, f"Adapter of run {run.run_id}", token, base_s)


def publish_result(
    run: RunDir, name: ResultName, publish: PublishConfig, token: str, base_s: float = BASE_S
) -> dict[str, Any]:
    """Upload one result file to `data/<name>_<run id>.json` of `publish.results_repo`.

    Returns and raises as `publish_adapter`.
    """
    target = Target(publish.results_repo, publish.results_repo_type, publish.private)
    path = {
        "trainer_state": run.trainer_state,
        "log_history": run.log_history,
        "held_out_eval": run.held_out_eval,
    }[name]
    files = _read({f"data/{name}_{run.run_id}.json": path}, target, run, token)
    return commit_files(target, files, f"{name} of run {run.run_id}", token, base_s)


def commit_files(
    target: Target, files: Mapping[str, File], title: str, token: str, base_s: float
) -> dict[str, Any]:
    """Commit what differs of `files`, by path, to `target`, and check it there.

    Returns and raises as `publish_adapter`.
    """
    from huggingface_hub import HfApi

    what = f"Publishing {_named(list(files))} to {target}"
    n_bytes = sum(len(file.content) for file in files.values())
    with hub_calls(what, min(base_s + n_bytes / _SLOWEST_BYTES_PER_S, _LONGEST_SEND_S)) as calls:
        api = HfApi(endpoint=endpoint(), token=token)
        head, revision = calls.patiently(lambda: _commit_differences(api, target, files, title))
        missing = _differences(api, target, revision, files) if revision != head else []
    if missing:
        raise PublishError(
            f"{what}: at commit {revision} these differ from what was sent: "
            f"{_named(missing)}. The next try sends them again.",
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


def _named(paths: list[str]) -> str:
    shown = ", ".join(paths[:_SHOWN_FILES])
    return shown if len(paths) <= _SHOWN_FILES else f"{shown} and {len(paths) - _SHOWN_FILES} more"


def _commit_differences(
    api: HfApi, target: Target, files: Mapping[str, File], title: str
) -> tuple[str, str]:
    """Commit those of `files` that the repository lacks; return its head before and after."""
    from huggingface_hub import CommitOperationAdd

    head = _head(api, target)
    changed = _differences(api, target, head, files)
    if not changed:
        return head, head
    # From a stream the library sends by plain HTTP. From bytes it would use Xet, which no limit of
    # ours can end and which other endpoints lack.
    added = [CommitOperationAdd(path, io.BytesIO(files[path].content)) for path in changed]
    first = {files[path].sha256: add for path, add in zip(changed[::-1], added[::-1], strict=True)}
    if len(first) < len(added):
        # The library reads one stream of equal files from several threads; what is there by the
        # time of the commit it does not read again.
        api.preupload_lfs_files(target.repo_id, first.values(), repo_type=target.repo_type)
    commit = api.create_commit(
        target.repo_id,
        added,
        commit_message=title,
        repo_type=target.repo_type,
        parent_commit=head,
    )
    return head, commit.oid


def _head(api: HfApi, target: Target) -> str:
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


def _differences(api: HfApi, target: Target, revision: str, files: Mapping[str, File]) -> list[str]:
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


def _read(paths: Mapping[str, Path], target: Target, run: RunDir, token: str) -> dict[str, File]:
    """Read the files once, so that what was scanned is what is sent. Raises PublishError."""
    missing = [str(path) for path in paths.values() if not path.is_file()]
    if not target.repo_id or missing:
        fault = f"{', '.join(missing)}: no such file" if missing else "no repository is configured"
        raise PublishError(
            f"Publishing to {target} refused: {fault}. Finish the run's earlier steps, and set "
            "publish.adapter_repo or publish.results_repo.",
            retryable=False,
        )
    files = {name: File.of(path.read_bytes()) for name, path in paths.items()}
    faults = {name: why_not_publish(paths[name], files[name].content, run, token) for name in files}
    for name, fault in faults.items():
        if fault:
            raise PublishError(
                f"Publishing {name} to {target} refused: {paths[name]} {fault}.", retryable=False
            )
    return files


def _refuse_local_base(adapter_config: Path, target: Target) -> None:
    """Name the field, which the scan of all files doesn't, and refuse relative paths too."""
    if not adapter_config.is_file():
        return  # named with whatever else is missing
    name = strict_json.read(adapter_config).get("base_model_name_or_path") or ""
    if _LOCAL_PATH.match(name) or name.count("/") > 1 or ("/" in name and Path(name).is_dir()):
        problem = Problem(
            SHAPE, "base_model_name_or_path", name,
            "is a path of this machine", "Write the Hub id of the base model there, or null.",
        )  # fmt: skip
        raise PublishError(f"Publishing to {target} refused: {problem}", retryable=False)
