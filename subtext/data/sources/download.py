"""Downloading one file of known size and sha256: resumable, checked, atomic.

The bytes go to `<name>.part`; beside it `<name>.part.json` keeps the sha256 they are meant for and
the server's ETag. Only a file whose size and sha256 are right gets its own name. A connection that
ends early is taken up where it broke, now or in a later process (RFC 9110: Range, If-Range).
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtext import strict_json
from subtext.data.sources.patience import Patience, may_recover, persistently
from subtext.digests import sha256_of
from subtext.errors import DownloadError, Problem, reason_of
from subtext.progress import Progress, Watcher, nobody

if TYPE_CHECKING:
    import httpx2

_CONNECT_S = 10.0
_DISK_RESERVE_BYTES = 2**20
_FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REMEDIES = {
    401: "HF_TOKEN is wrong or expired, or the file needs one: set it to a token that may read.",
    403: "Reading it is not allowed: accept the terms on its page, or set HF_TOKEN to a token that "
    "may read it.",
    404: "It is no longer there: see data/sources.toml and, for the clips, sources.lock.json.",
}


@dataclass(frozen=True)
class Wanted:
    """One file: where it comes from, where it goes, and what it must be.

    `size` in bytes. `token` is sent to the host of `url` and to no other. `if_changed` is the
    remedy shown when the content is another than `sha256` says.
    """

    url: str
    target: Path
    size: int
    sha256: str
    token: str = ""
    if_changed: str = "Trust neither; report it, and fetch again later."

    @property
    def part(self) -> Path:
        return self.target.with_name(f"{self.target.name}.part")

    @property
    def note(self) -> Path:
        return self.target.with_name(f"{self.target.name}.part.json")


def download(wanted: Wanted, watcher: Watcher = nobody, patience: Patience | None = None) -> bool:
    """Make `wanted.target` exist with the right content; return False where it did already.

    Raises DownloadError: `retryable` for a network or server that may recover, final for a
    refusal, other content, a full disk, or another file of that name, which is left alone. What
    arrived before a retryable error or a full disk stays in `<name>.part`.
    """
    patience = patience or Patience()
    try:
        if wanted.target.exists():
            _check_present(wanted)
            return False
        require_space(wanted.target.parent, wanted.size - _held(wanted), wanted.url)
        persistently(lambda: _fetch(wanted, watcher, patience), patience, lambda: _held(wanted))
        wanted.part.replace(wanted.target)
        wanted.note.unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(wanted.target, error) from error
    return True


def disk_error(path: Path, error: OSError) -> DownloadError:
    """The error for a file that can't be written."""
    remedy = "Check the folder and your rights there."
    if error.errno in _FULL_DISK:
        remedy = "Make room, or name another folder with --root, and start again: it resumes."
    said = f"can't be written: {reason_of(error)}"
    problem = Problem(path.name, "file", error.filename or str(path), said, remedy)
    return DownloadError("Not written", [problem])


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raise DownloadError unless `needed` bytes and 1 MiB more are free on the folder's disk."""
    free = shutil.disk_usage(folder).free
    if needed + _DISK_RESERVE_BYTES > free:
        problem = Problem(
            what, "bytes", needed, f"don't fit on the disk of {folder}, which has {free} free",
            "Make room, or name another folder with --root.",
        )  # fmt: skip
        raise DownloadError("Disk too small", [problem])


def _check_present(wanted: Wanted) -> None:
    if not wanted.target.is_file():
        found = "no regular file"
    elif (found := sha256_of(wanted.target)) == wanted.sha256:
        return
    problem = Problem(
        str(wanted.target), "sha256", found, f"is there already, and is not {wanted.sha256}",
        f"Move it away or delete it, then fetch again. {wanted.if_changed}",
    )  # fmt: skip
    raise DownloadError("Another file is in the way", [problem])


def _held(wanted: Wanted) -> int:
    """Bytes of this very content that earlier attempts left; others are thrown away."""
    if not wanted.part.exists():
        return 0
    held = wanted.part.stat().st_size
    if _note(wanted).get("sha256") == wanted.sha256 and held <= wanted.size:
        return held
    _start_over(wanted)
    return 0


def _note(wanted: Wanted) -> dict[str, Any]:
    try:
        note = strict_json.read(wanted.note)
    except (FileNotFoundError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _start_over(wanted: Wanted) -> None:
    wanted.part.unlink(missing_ok=True)
    wanted.note.unlink(missing_ok=True)


def _fetch(wanted: Wanted, watcher: Watcher, patience: Patience) -> None:
    """Complete `wanted.part` and check it: one attempt, and a second where the first continued
    bytes that turn out to be another file's."""
    resumed = _held(wanted)
    if resumed < wanted.size:
        _receive(wanted, resumed, watcher, patience)
    found = sha256_of(wanted.part)
    if found == wanted.sha256:
        return
    _start_over(wanted)
    message = f"the content is another than {wanted.sha256}"
    if resumed:
        raise _failure(wanted, "sha256", found, f"{message} after resuming", "Starting over.", True)
    raise _failure(wanted, "sha256", found, message, wanted.if_changed)


def _receive(wanted: Wanted, held: int, watcher: Watcher, patience: Patience) -> None:
    import httpx2

    headers = {"Accept-Encoding": "identity"}
    if wanted.token:
        headers["Authorization"] = f"Bearer {wanted.token}"
    if held:
        headers["Range"] = f"bytes={held}-"
        if etag := _note(wanted).get("etag"):
            headers["If-Range"] = str(etag)
    timeout = httpx2.Timeout(patience.silence_s, connect=min(_CONNECT_S, patience.silence_s))
    try:
        with (
            httpx2.Client(follow_redirects=True, timeout=timeout) as client,
            client.stream("GET", wanted.url, headers=headers) as response,
        ):
            start = _accept(wanted, response, held)
            _store(wanted, response, start, watcher)
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL, httpx2.TooManyRedirects) as error:
        raise _failure(
            wanted, "url", wanted.url, f"leads nowhere: {error}", "Check data/sources.toml."
        ) from error
    except httpx2.HTTPError as error:
        silent = isinstance(error, httpx2.TimeoutException)
        reason = f"silence ({type(error).__name__})" if silent else str(error) or repr(error)
        raise _failure(
            wanted, "bytes", _held(wanted), f"the connection failed: {reason}",
            "Check the network (HTTPS_PROXY; for the Hub HF_ENDPOINT) and start again: it resumes.",
            True,
        ) from error  # fmt: skip
    if (received := _held(wanted)) < wanted.size:
        raise _failure(
            wanted, "bytes", received, f"the answer ended before {wanted.size}",
            "Start again: it resumes.", True,
        )  # fmt: skip


def _accept(wanted: Wanted, response: httpx2.Response, held: int) -> int:
    """Return the offset at which the answer's body belongs. Raises DownloadError."""
    status, headers = response.status_code, response.headers
    if status == 416 or (status == 206 and not _continues(wanted, headers, held)):
        _start_over(wanted)
        raise _failure(
            wanted, "status", status, "the server has another file than the one begun",
            "Starting over.", True,
        )  # fmt: skip
    if status not in (200, 206):
        retryable = may_recover(status)
        default = "Try again later." if retryable else "Check data/sources.toml."
        remedy = _REMEDIES.get(status, default)
        raise _failure(
            wanted, "status", status, f"the server at {response.url.host} refuses it",
            remedy, retryable,
        )  # fmt: skip
    if (encoding := headers.get("Content-Encoding", "identity")) != "identity":
        raise _failure(
            wanted, "Content-Encoding", encoding, "the answer is packed though that was not asked",
            "A proxy may do this: download the file another way and put it in place.",
        )  # fmt: skip
    start = held if status == 206 else 0
    length = headers.get("Content-Length", "")
    if length.isdigit() and int(length) != wanted.size - start:
        raise _failure(
            wanted, "Content-Length", int(length), f"is not {wanted.size - start}",
            wanted.if_changed,
        )  # fmt: skip
    return start


def _continues(wanted: Wanted, headers: httpx2.Headers, held: int) -> bool:
    expected = f"bytes {held}-{wanted.size - 1}/"
    content_range = headers.get("Content-Range", "")
    known, etag = _note(wanted).get("etag"), _strong_etag(headers)
    same = not (known and etag) or known == etag
    return bool(held) and same and content_range in (f"{expected}{wanted.size}", f"{expected}*")


def _strong_etag(headers: httpx2.Headers) -> str:
    """The ETag where it promises the same bytes; If-Range takes no weak one."""
    etag = str(headers.get("ETag", ""))
    return "" if etag.startswith("W/") else etag


def _store(wanted: Wanted, response: httpx2.Response, start: int, watcher: Watcher) -> None:
    if start == 0:
        _start_over(wanted)
        note = {"sha256": wanted.sha256, "etag": _strong_etag(response.headers)}
        strict_json.write(wanted.note, note)
    done = start
    watcher(Progress("fetch", done, wanted.size))
    with wanted.part.open("ab") as stream:
        for block in response.iter_raw():
            done += len(block)
            if done > wanted.size:
                break
            stream.write(block)
            watcher(Progress("fetch", done, wanted.size))
        stream.flush()
        os.fsync(stream.fileno())
    if done > wanted.size:
        _start_over(wanted)
        raise _failure(
            wanted, "bytes", done, f"the server sends more than {wanted.size}", wanted.if_changed
        )


def _failure(
    wanted: Wanted, field: str, value: object, problem: str, remedy: str, retryable: bool = False
) -> DownloadError:
    where = f"{wanted.target.name} from {wanted.url}"
    problems = [Problem(where, field, value, problem, remedy)]
    return DownloadError("Download failed", problems, retryable=retryable)
