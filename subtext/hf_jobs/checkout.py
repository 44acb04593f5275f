"""Which commit of which repository the checkout is: what a job on another machine can clone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import subtext
from subtext.errors import ConfigError, Problem
from subtext.hf_jobs.config import JobConfig

CHECKOUT = Path(subtext.__file__).resolve().parents[1]
_GIT_S = 60


def code_of(job: JobConfig, checkout: Path = CHECKOUT) -> tuple[str, str]:
    """Return the repository's address and the commit that the job runs; both "" with `code_path`.

    Raises ConfigError where the checkout differs from its last commit, or a clone elsewhere could
    not hold that commit.
    """
    if job.code_path:
        return "", ""
    commit = job.commit or _clean_commit(checkout)
    origin = _git(checkout, "remote", "get-url", "origin")
    repository = job.repository or _cloneable(origin or "")
    pushed = _git(checkout, "branch", "--remotes", "--contains", commit)
    if not job.commit and repository == origin and not pushed:
        raise _refused(
            "job.commit", commit, f"is not in {repository} yet, as far as this checkout knows",
            "Push it, and `git fetch`.",
        )  # fmt: skip
    return repository, commit


def _clean_commit(checkout: Path) -> str:
    commit = _git(checkout, "rev-parse", "--verify", "HEAD^{commit}")
    status = _git(checkout, "status", "--porcelain")
    if commit is None or status is None:
        raise _refused(
            "job.commit", "", f"can't be found out: {checkout} is no git checkout with a commit",
            "Set job.commit and job.repository, or job.code_path to where job.image has the code.",
        )  # fmt: skip
    if changed := status.splitlines():
        raise _refused(
            "job.commit", commit,
            f"is not what {checkout} holds: {len(changed)} files differ from it, for example "
            f"{changed[0][3:]}",
            "Commit and push them, or set job.commit to the commit that the job shall run.",
        )  # fmt: skip
    return commit


def _cloneable(origin: str) -> str:
    try:
        repository = JobConfig(repository=origin).repository
    except ValueError:
        repository = ""
    if not repository:
        # An address with a password in it must not be shown.
        raise _refused(
            "job.repository", "",
            "is not set, and the checkout's remote `origin` is no https:// address that anybody "
            "may clone",
            "Set it to one, or job.code_path to where job.image has the code.",
        )  # fmt: skip
    return repository


def _git(checkout: Path, *arguments: str) -> str | None:
    """What git prints, None where it fails, takes a minute or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments],
            capture_output=True, text=True, timeout=_GIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.rstrip("\n") if done.returncode == 0 else None


def _refused(field: str, value: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError("Job refused", [Problem("parameters", field, value, problem, remedy)])
