"""The archive of clips on the Hub: what it is there, and where its bytes are.

Heeds $HF_ENDPOINT and $HF_TOKEN, and no token that is stored on the machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from subtext.data.sources.download import Wanted
from subtext.data.sources.patience import may_recover
from subtext.errors import DownloadError, Problem
from subtext.validation import problems_of

_HUB_S = 30.0

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_Repo = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")]


class Closed(BaseModel):
    """A part of sources.toml or of the lock file: no key but those named."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HubArchive(Closed):
    """A zip in a dataset repository of the Hub, neither its revision nor its hash known."""

    repo: _Repo
    file: Name


class Locked(HubArchive):
    """What the Hub said the archive is when it was first fetched; `size` in bytes."""

    revision: _Commit
    sha256: Sha256
    size: int = Field(gt=0)


def resolve(clips: HubArchive) -> Locked:
    """Ask the Hub for commit, size and sha256 of `clips` at the head of its repository.

    Heeds $HF_ENDPOINT and $HF_TOKEN. Raises DownloadError.
    """
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    where = f"dataset {clips.repo}"
    api = HfApi(endpoint=_endpoint(), token=_token() or False)
    try:
        # One answer for both, so that commit and hash belong together.
        info = api.dataset_info(clips.repo, files_metadata=True, timeout=_HUB_S)
    except OfflineModeIsEnabled as error:
        raise _failure(
            where, "HF_HUB_OFFLINE", os.environ.get("HF_HUB_OFFLINE"), "forbids asking the Hub",
            "Unset it, or fetch with --annotations-only.",
        ) from error  # fmt: skip
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise _failure(
            where, "status", status, "the Hub does not tell what it holds",
            "Check HF_TOKEN (401 also stands for a missing repository), and HF_ENDPOINT.",
            may_recover(status),
        ) from error  # fmt: skip
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise _failure(
            where, "HF_ENDPOINT", api.endpoint, f"does not answer: {error or repr(error)}",
            "Check the network (HTTPS_PROXY, HF_ENDPOINT) and try again.",
            isinstance(error, httpx2.TransportError)
            and not isinstance(error, httpx2.UnsupportedProtocol),
        ) from error  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise _failure(
            where, "HF_ENDPOINT", api.endpoint, f"gives an answer that is not the Hub's: {error}",
            "Check HF_ENDPOINT.",
        ) from error  # fmt: skip
    file = next((item for item in info.siblings or () if item.rfilename == clips.file), None)
    if file is None or file.lfs is None:
        found = "nothing" if file is None else "a file without sha256"
        raise _failure(
            where, "file", clips.file, f"the Hub has {found} of that name at {info.sha}",
            "See the repository's page and correct data/sources.toml.",
        )  # fmt: skip
    try:
        return Locked(
            repo=clips.repo, file=clips.file,
            revision=info.sha or "", sha256=file.lfs.sha256, size=file.lfs.size,
        )  # fmt: skip
    except ValidationError as error:
        remedy = "This is not the Hub's answer: check HF_ENDPOINT."
        raise DownloadError("Hub refused", list(problems_of(where, error, remedy))) from None


def wanted_archive(locked: Locked, target: Path, if_changed: str) -> Wanted:
    """Return the download of what `locked` describes to `target`."""
    from huggingface_hub import hf_hub_url

    url = hf_hub_url(
        locked.repo, locked.file,
        repo_type="dataset", revision=locked.revision, endpoint=_endpoint(),
    )  # fmt: skip
    return Wanted(url, target, locked.size, locked.sha256, _token(), if_changed)


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or None


def _token() -> str:
    token = os.environ.get("HF_TOKEN", "").strip()
    if token and not (token.isascii() and token.isprintable()):
        raise _failure(
            "environment", "HF_TOKEN", "(not shown)", "holds characters that no token has",
            "Copy it again, or unset it: the clips are public.",
        )  # fmt: skip
    return token


def _failure(
    where: str, field: str, value: object, problem: str, remedy: str, retryable: bool = False
) -> DownloadError:
    problems = [Problem(where, field, value, problem, remedy)]
    return DownloadError("Hub refused", problems, retryable=retryable)
