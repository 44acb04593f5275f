"""A run directory on its way through a private dataset of the Hub, and back on another machine.

In the dataset, `<run id>/` holds the files that may leave a machine (formats without pickles, no
checkpoints, nothing of the MLflow store there) and `archive.json`, which names each with sha256
and size. A push is one commit; a pull takes one commit's files, checks all, then puts them in
place. `python -m subtext.hf_jobs.archive keep --run ID --repo OWNER/NAME -- COMMAND` runs a command
that makes the run and pushes while it grows and once it ended, however it ended.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from subtext import strict_json
from subtext.digests import sha256_of
from subtext.errors import DataError, MachineError, Problem, PublishError, SubtextError
from subtext.hf_jobs.config import TOKEN
from subtext.paths import project_root
from subtext.printable import printable
from subtext.publishing.client import endpoint, hub_calls
from subtext.publishing.hub import BASE_S, File, Target, commit_files
from subtext.run_dir import RunDir
from subtext.secrets_scan import find_secret
from subtext.tracking.runs import PLAIN_SUFFIXES, plain_files

MANIFEST = "archive.json"
_SLOWEST_BYTES_PER_S = 250_000
_LAST_TRIES_S = (5, 15, 45, 60)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)]


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schema_: Literal["subtext-archive/1"] = Field("subtext-archive/1", alias="schema")
    run_id: str
    files: dict[str, _Entry]


def push(run: RunDir, repo_id: str, token: str, secrets: Sequence[str] = ()) -> str:
    """Upload what of `run` may leave this machine, as one commit; return the commit.

    Without a change no commit is made. Raises PublishError, also where a file holds `token`, one of
    `secrets`, or what looks like a token.
    """
    target = Target(repo_id, "dataset", private=True)
    files = {name: File.of(path.read_bytes()) for name, path in _leaving(run).items()}
    for name, file in files.items():
        _refuse_secrets(name, file.content, (token, *secrets), target)
    listed = {
        name: {"sha256": file.sha256, "size": len(file.content)} for name, file in files.items()
    }
    manifest = {"schema": "subtext-archive/1", "run_id": run.run_id, "files": listed}
    files[MANIFEST] = File.of(strict_json.dumps(manifest).encode())
    there = {f"{run.run_id}/{name}": file for name, file in files.items()}
    title = f"Run directory of {run.run_id}"
    return str(commit_files(target, there, title, token, BASE_S)["revision"])


def pull(run: RunDir, repo_id: str, token: str) -> str:
    """Download the run directory that was pushed as `run.run_id`; return the commit.

    Nothing is put in place before all files of that commit have the hashes that its manifest says.
    Raises PublishError, and DataError for a manifest that names what can't be a run's file.
    """
    with _downloaded(run, repo_id, token) as (folder, names, revision):
        for name in names:
            target = run.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.parent.resolve().is_relative_to(run.path.resolve()):
                raise _bad_manifest(repo_id, name, "is behind a link that leads elsewhere")
            (folder / name).replace(target)
    return revision


def restore_finished(run: RunDir, repo_id: str, token: str) -> bool:
    """Pull a run whose training had finished, so that it goes on from there; whether it did.

    One that had not is left alone: it lacks the checkpoint that its records end at.
    Raises as `pull`.
    """
    try:
        with _downloaded(run, repo_id, token) as (folder, _, _):
            earlier = RunDir(folder)
            if not earlier.read(earlier.training, {}).get("finished"):
                return False
            if not run.path.exists():
                run.path.parent.mkdir(parents=True, exist_ok=True)
                folder.rename(run.path)
                return True
    except NothingArchivedError:
        pass
    return False


class NothingArchivedError(PublishError):
    """The dataset holds no run of that name."""


@contextmanager
def _downloaded(run: RunDir, repo_id: str, token: str) -> Iterator[tuple[Path, list[str], str]]:
    """A temporary folder beside the run's with its checked files, their names, and the commit."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

    api = HfApi(endpoint=endpoint(), token=token)
    what = f"Bringing back {run.run_id} from dataset {repo_id} on {endpoint()}"
    run.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=run.path.parent, prefix=".archive-") as temporary:
        fetched = Path(temporary) / "fetched"

        def fetch(name: str) -> Path:
            return Path(
                api.hf_hub_download(
                    repo_id, f"{run.run_id}/{name}", repo_type="dataset", revision=revision,
                    local_dir=fetched,
                )
            )  # fmt: skip

        with hub_calls(what, BASE_S):
            try:
                revision = str(api.repo_info(repo_id, repo_type="dataset").sha)
                manifest_path = fetch(MANIFEST)
            except (EntryNotFoundError, RepositoryNotFoundError) as error:
                raise NothingArchivedError(
                    f"{what}: there is none. The job ended before it could upload anything, or "
                    "HF_TOKEN may not read that dataset.",
                    retryable=False,
                ) from error
        files = _read_manifest(manifest_path, run.run_id, repo_id)
        folder = Path(temporary) / "run"
        folder.mkdir()
        for name, entry in files.items():
            with hub_calls(f"{what}: {name}", BASE_S + entry.size / _SLOWEST_BYTES_PER_S):
                path = fetch(name)
            if path.stat().st_size != entry.size or sha256_of(path) != entry.sha256:
                raise PublishError(
                    f"{what}: {name} at commit {revision} is not what {MANIFEST} says.",
                    retryable=True,
                )
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(folder / name)
        yield folder, list(files), revision


def _read_manifest(path: Path, run_id: str, repo_id: str) -> Mapping[str, _Entry]:
    try:
        manifest = _Manifest.model_validate(strict_json.read(path))
    except (ValidationError, ValueError) as error:
        raise _bad_manifest(repo_id, path.name, f"can't be read: {error}") from None
    if manifest.run_id != run_id:
        raise _bad_manifest(repo_id, manifest.run_id, f"is another run than {run_id}")
    for name in manifest.files:
        parts = PurePosixPath(name).parts
        inside = name == "/".join(parts) and not name.startswith("/") and "\\" not in name
        hidden = any(part.startswith(".") for part in parts)
        if not (inside and parts) or hidden or "\0" in name:
            raise _bad_manifest(repo_id, name, "is no path inside a run directory")
        if PurePosixPath(name).suffix not in PLAIN_SUFFIXES:
            raise _bad_manifest(repo_id, name, "is of a format that no run directory brings along")
    return manifest.files


def _bad_manifest(repo_id: str, value: str, problem: str) -> DataError:
    remedy = "Look at who else writes to that dataset, and let the job run again."
    where = f"{repo_id}, {MANIFEST}"
    return DataError("Run directory refused", [Problem(where, "files", value, problem, remedy)])


def _leaving(run: RunDir) -> dict[str, Path]:
    """The files of `run` that may leave this machine, by their names in it."""
    behind = (run.tracking, run.gate, run.published, *run.checkpoints.values())
    found = {path.relative_to(run.path).as_posix(): path for path in plain_files(run.path)}
    return {
        name: path
        for name, path in sorted(found.items())
        if path.resolve() == run.path.resolve() / name
        and not any(path.is_relative_to(left) for left in behind)
    }


def _refuse_secrets(name: str, content: bytes, secrets: Sequence[str], target: Target) -> None:
    if found := find_secret(content, tuple(secrets)):
        raise PublishError(
            f"Uploading the run directory to {target} refused: {name} holds {found}. Remove what "
            "wrote it, and revoke the token.",
            retryable=False,
        )


def keep(
    run: RunDir,
    repo_id: str,
    token: str,
    secrets: Sequence[str],
    command: Sequence[str],
    every_s: float,
) -> int:
    """Run `command`, which makes `run`; push it every `every_s` seconds and at the end.

    SIGTERM goes to the command, and what it left is pushed. Returns the command's exit code, or 1
    where it is 0 and the last push failed.
    """
    if restore_finished(run, repo_id, token):
        print(f"{run.run_id}: training had finished in an earlier job; it goes on from there")
    child = subprocess.Popen(command)
    before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        while (code := _exit_code(child, every_s)) is None:
            _try_push(run, repo_id, token, secrets)
    finally:
        signal.signal(signal.SIGTERM, before)
    for wait_s in (*_LAST_TRIES_S, 0):
        done = _try_push(run, repo_id, token, secrets)
        if done or done is None:
            break
        time.sleep(wait_s)
    return code or int(not done)


def _exit_code(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    """As a shell gives it: 128 and the signal's number where one ended the child."""
    try:
        code = child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    return code if code >= 0 else 128 - code


def _try_push(run: RunDir, repo_id: str, token: str, secrets: Sequence[str]) -> bool | None:
    """Whether what is there by now was pushed; None where another try is no use."""
    if not run.config.exists():
        return None
    try:
        print(f"{run.run_id}: at commit {push(run, repo_id, token, secrets)} of {repo_id}")
    except PublishError as error:
        print(printable(str(error)), file=sys.stderr)
        return False if error.retryable else None
    except OSError as error:  # the command has moved or deleted a file meanwhile
        print(printable(f"{run.run_id} changes while it is read: {error}"), file=sys.stderr)
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 2 refused or failed; `keep`: that of its command."""
    options = _parser().parse_args(arguments)
    run = RunDir(project_root() / options.runs / options.run)
    token = os.environ.get(TOKEN, "").strip()
    secrets = [os.environ[name] for name in options.secret if os.environ.get(name)]
    try:
        if not token:
            problem = Problem("environment", TOKEN, "", "is not set", "Set it, and try again.")
            raise MachineError("Archive refused", [problem])
        if options.verb == "keep":
            return keep(run, options.repo, token, secrets, options.command, options.every)
        revision = (
            push(run, options.repo, token, secrets)
            if options.verb == "push"
            else pull(run, options.repo, token)
        )
    except SubtextError as error:
        print(printable(str(error)), file=sys.stderr)
        return 2
    print(f"{run.path} is commit {revision} of dataset {options.repo}, folder {run.run_id}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m subtext.hf_jobs.archive", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, does in (
        ("push", "upload a run directory"),
        ("pull", "download one"),
        ("keep", "run a command and push what it makes"),
    ):
        verb = verbs.add_parser(name, help=does)
        verb.add_argument("--run", required=True, help="id of the run")
        verb.add_argument("--runs", default="runs", help="folder of run directories")
        verb.add_argument("--repo", required=True, help="dataset; made private where missing")
        verb.add_argument(
            "--secret", action="append", default=[], metavar="NAME",
            help="environment variable whose value must not be in any file; repeatable",
        )  # fmt: skip
        if name == "keep":
            verb.add_argument("--every", type=float, default=600, help="seconds between pushes")
            verb.add_argument("command", nargs="+", help="what to run, behind --")
    return parser


if __name__ == "__main__":
    sys.exit(main())
