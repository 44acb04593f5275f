"""What the local Hub keeps on disk: contents by hash, and a chain of commits for each repository.

    ROOT/blobs/<sha256[:2]>/<sha256>                  every content, whatever its name
    ROOT/repos/<kind>/<namespace>/<name>/repo.json    visibility and, for a Space, its SDK
                                        /commits/<id>.json   parent, title and the whole file list
                                        /head         id of the last commit

Names of files exist only inside the JSON, so no uploaded path can reach the disk. Every write is
a rename, and `head` moves last: a reader sees the state before a commit or after it. One process
at a time may open a root.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import tempfile
import threading
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from subtext import strict_json

KINDS = {"models": "model", "datasets": "dataset", "spaces": "space"}
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}")
_COMMIT_ID = re.compile(r"[0-9a-f]{40}")


class HubError(Exception):
    """A refusal: HTTP `status`, the Hub's error `code` for its header, and fields for the body."""

    def __init__(self, status: int, message: str, code: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.fields = status, message, code, fields


@dataclass(frozen=True)
class Repo:
    """A repository's address; `kind` is a key of KINDS."""

    kind: str
    namespace: str
    name: str

    def __post_init__(self) -> None:
        valid = _NAME.fullmatch(self.namespace) and _NAME.fullmatch(self.name)
        if self.kind not in KINDS or not valid or ".." in self.id:
            raise HubError(400, f"{self.kind} {self.id!r} is no repository name")

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def url_path(self) -> str:
        return self.id if self.kind == "models" else f"{self.kind}/{self.id}"


def git_blob_id(content: bytes) -> str:
    """SHA-1 that git gives `content`, in hexadecimal."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _is_under(path: str, gone: str) -> bool:
    return path == gone or (gone.endswith("/") and path.startswith(gone))


def safe_path(path: object) -> str:
    """Return `path` if it names a file inside a repository. Raises HubError 400 otherwise."""
    parts = path.split("/") if isinstance(path, str) else [""]
    if "\\" in str(path) or "\0" in str(path) or {"", ".", "..", ".git"} & set(parts):
        raise HubError(400, f"{path!r} is no path inside a repository")
    return "/".join(parts)


class Store:
    """The repositories under one root folder. Methods raise HubError."""

    def __init__(self, root: Path) -> None:
        self._repos, self._blobs = root / "repos", root / "blobs"
        self._repos.mkdir(parents=True, exist_ok=True)
        self._blobs.mkdir(exist_ok=True)
        self._write = threading.Lock()
        self._owner = (root / ".lock").open("w")
        try:
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HubError(423, f"{root} is in use by another local Hub; stop it first") from None

    def close(self) -> None:
        """Let another process open the root."""
        self._owner.close()

    def repos(self) -> list[Repo]:
        """Every repository, sorted by kind and name."""
        found = (path.parent.parts[-3:] for path in self._repos.glob("*/*/*/head"))
        return [Repo(*parts) for parts in sorted(found)]

    def create(self, repo: Repo, *, private: bool, sdk: str | None) -> None:
        """Make an empty repository with a first commit. 409 where there is one already."""
        with self._write:
            if (self._folder(repo) / "head").exists():
                raise HubError(409, f"You already created this {KINDS[repo.kind]} repo")
            strict_json.write(self._folder(repo) / "repo.json", {"private": private, "sdk": sdk})
            self._append(repo, None, "initial commit", "", {})

    def about(self, repo: Repo) -> dict[str, Any]:
        """`{"private": bool, "sdk": str | None}`. 404 where there is no such repository."""
        if not (self._folder(repo) / "head").exists():
            raise HubError(404, f"Repository {repo.id} not found", "RepoNotFound")
        return dict(strict_json.read(self._folder(repo) / "repo.json"))

    def commit_at(self, repo: Repo, revision: str) -> dict[str, Any]:
        """The commit that `main` or a commit id names, with its id and whole file list."""
        self.about(repo)
        commit_id = self._head(repo) if revision == "main" else revision
        path = self._folder(repo) / "commits" / f"{commit_id}.json"
        if not _COMMIT_ID.fullmatch(commit_id) or not path.exists():
            raise HubError(404, f"{repo.id} has no revision {revision!r}", "RevisionNotFound")
        return {"id": commit_id, **strict_json.read(path)}

    def history(self, repo: Repo, revision: str = "main") -> list[dict[str, Any]]:
        """Commits from `revision` back to the first."""
        commits = [self.commit_at(repo, revision)]
        while (parent := commits[-1]["parent"]) is not None:
            commits.append(self.commit_at(repo, parent))
        return commits

    def file_at(self, repo: Repo, revision: str, path: str) -> tuple[dict[str, Any], Path]:
        """A file's entry and where its content lies."""
        entry = self.commit_at(repo, revision)["files"].get(path)
        if entry is None:
            raise HubError(404, f"{repo.id} has no file {path!r} at {revision}", "EntryNotFound")
        return entry, self._blob(entry["sha256"])

    def has_blob(self, sha256: str, size: int) -> bool:
        path = self._blob(sha256)
        return path.exists() and path.stat().st_size == size

    async def receive_blob(self, chunks: AsyncIterable[bytes], sha256: str, size: int) -> None:
        """Store a streamed content if hash and size are as announced, else raise 422."""
        target, digest = self._blob(sha256), hashlib.sha256()
        with self._incoming() as (stream, temporary):
            async for chunk in chunks:
                digest.update(chunk)
                stream.write(chunk)
            if digest.hexdigest() != sha256 or stream.tell() != size:
                raise HubError(422, f"received {stream.tell()} bytes that are not {sha256}")
            _keep(stream, temporary, target)

    def commit(
        self,
        repo: Repo,
        header: dict[str, Any],
        contents: dict[str, bytes],
        pointers: dict[str, dict[str, Any]],
        deleted: list[str],
    ) -> str:
        """Add a commit to `main` and return its id.

        `contents` are files sent inline, `pointers` files whose content was uploaded before
        (`{"oid": sha256, "size"}`), `deleted` files, or folders ending in "/".
        412 if `header["parentCommit"]` is no longer the head.
        """
        with self._write:
            head = self.commit_at(repo, "main")
            if header.get("parentCommit") not in (None, head["id"]):
                raise HubError(412, "A commit has happened since. Please refresh and try again.")
            files = {
                path: entry
                for path, entry in head["files"].items()
                if not any(_is_under(path, gone) for gone in deleted)
            }
            files |= {path: self._regular_entry(content) for path, content in contents.items()}
            files |= {path: self._lfs_entry(path, item) for path, item in pointers.items()}
            title, description = header.get("summary", ""), header.get("description", "")
            return self._append(repo, head["id"], title, description, files)

    def _regular_entry(self, content: bytes) -> dict[str, Any]:
        sha256 = hashlib.sha256(content).hexdigest()
        with self._incoming() as (stream, temporary):
            stream.write(content)
            _keep(stream, temporary, self._blob(sha256))
        return {
            "size": len(content), "oid": git_blob_id(content), "sha256": sha256, "lfs": False,
        }  # fmt: skip

    def _lfs_entry(self, path: str, pointer: dict[str, Any]) -> dict[str, Any]:
        sha256, size = str(pointer.get("oid")), int(pointer.get("size", -1))
        if not self.has_blob(sha256, size):
            raise HubError(400, f"{path}: content {sha256} of {size} bytes was never uploaded")
        oid = git_blob_id(lfs_pointer(sha256, size))
        return {"size": size, "oid": oid, "sha256": sha256, "lfs": True}

    def _append(
        self, repo: Repo, parent: str | None, title: str, description: str, files: dict[str, Any]
    ) -> str:
        date = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        record = {
            "parent": parent, "title": title, "description": description, "date": date,
            "files": files,
        }  # fmt: skip
        identity = f"{repo.url_path}\n{strict_json.dumps(record)}"
        commit_id = hashlib.sha1(identity.encode()).hexdigest()
        strict_json.write(self._folder(repo) / "commits" / f"{commit_id}.json", record)
        strict_json.write_text(self._folder(repo) / "head", commit_id)
        return commit_id

    @contextmanager
    def _incoming(self) -> Iterator[tuple[BinaryIO, Path]]:
        handle, name = tempfile.mkstemp(dir=self._blobs, prefix=".incoming-")
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream, Path(name)
        finally:
            Path(name).unlink(missing_ok=True)

    def _head(self, repo: Repo) -> str:
        return (self._folder(repo) / "head").read_text("utf-8")

    def _folder(self, repo: Repo) -> Path:
        return self._repos / repo.kind / repo.namespace / repo.name

    def _blob(self, sha256: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise HubError(400, f"{sha256!r} is no sha256")
        return self._blobs / sha256[:2] / sha256


def _keep(stream: BinaryIO, temporary: Path, target: Path) -> None:
    stream.flush()
    os.fsync(stream.fileno())
    target.parent.mkdir(exist_ok=True)
    temporary.replace(target)


def lfs_pointer(sha256: str, size: int) -> bytes:
    """The text that git stores in place of a large file."""
    return (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"
    ).encode()
