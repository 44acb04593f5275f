"""Which MLflow store is used, whether it answers, and clients for it."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from subtext.errors import MachineError, Problem, TrackingError
from subtext.paths import project_root

_SQLITE = "sqlite:///"
_HEALTH_LIMIT_S = 3.0
_MIGRATION_LIMIT_S = 120.0

# MLflow's own 7 retries of 120 s would hold a run for many minutes when the server is gone; our
# tasks retry too. 30 s leaves a server time to pass an adapter on to its own storage.
_CLIENT_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def tracking_uri(environ: Mapping[str, str] = os.environ) -> str:
    """`$MLFLOW_TRACKING_URI`, else `mlflow.db` at the project root.

    A relative SQLite path counts from the project root, since a worker's directory is arbitrary.
    """
    uri = environ.get("MLFLOW_TRACKING_URI", "").strip() or f"{_SQLITE}mlflow.db"
    database = sqlite_path(uri)
    return uri if database is None else f"{_SQLITE}{database}"


def sqlite_path(uri: str) -> Path | None:
    """The database file of a SQLite URI, absolute; None for any other URI or no file."""
    if not uri.startswith(_SQLITE) or uri[len(_SQLITE) :] in ("", ":memory:"):
        return None
    return Path(os.path.normpath(project_root() / uri[len(_SQLITE) :]))


def shown_uri(uri: str) -> str:
    """`uri` without user and password, for messages and files."""
    parts = urlsplit(uri)
    return uri.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1)


def check_reachable(uri: str) -> None:
    """Check, within a few seconds, that `uri` names a store that can be used.

    Raises MachineError for a store that can't work here (a file store, a missing folder), and
    TrackingError for a server that doesn't answer. Databases other than SQLite are only checked
    when the run starts.
    """
    scheme = urlsplit(uri).scheme
    if scheme in ("http", "https"):
        _check_server(uri)
    elif scheme == "sqlite":
        _check_sqlite(uri)
    elif scheme in ("", "file") or len(scheme) == 1:
        raise _refused(
            uri, "is a file store, which MLflow 3 no longer writes", "Set sqlite:////folder/mlflow.db"
            " or the http:// address of a server; `mlflow migrate-filestore` moves old runs."
        )  # fmt: skip


def client(uri: str) -> Any:
    """An `mlflow.MlflowClient` for `uri`, with bounded retries.

    The first client of a SQLite file creates its tables, so a lock keeps two processes from
    migrating one file at once.
    """
    for name, value in _CLIENT_DEFAULTS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    database = sqlite_path(uri)
    if database is None:
        return MlflowClient(uri, registry_uri=uri)
    from filelock import FileLock

    with FileLock(f"{database}.lock", timeout=_MIGRATION_LIMIT_S):
        return MlflowClient(uri, registry_uri=uri)


@contextmanager
def mlflow_errors(action: str) -> Iterator[None]:
    """Turn what MLflow, its database or its transport raise into a TrackingError."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        uri = tracking_uri()
        said = str(error).replace(uri.rstrip("/"), shown_uri(uri).rstrip("/"))
        raise TrackingError(
            f"MLflow could not {action}: {said}. The store is {shown_uri(uri)} "
            "(MLFLOW_TRACKING_URI); the run directory is kept."
        ) from error


def _check_server(uri: str) -> None:
    # without user and password: urllib takes them for a host name, and /health needs no login
    health = f"{shown_uri(uri).rstrip('/')}/health"
    remedy = (
        "Start it (`mlflow server`), correct MLFLOW_TRACKING_URI, or unset it to use mlflow.db."
    )
    try:
        with urllib.request.urlopen(health, timeout=_HEALTH_LIMIT_S):
            return
    except urllib.error.HTTPError as error:
        if error.code == 403:
            remedy = (
                "A server refuses host names it was not told of: start it with --allowed-hosts "
                "(MLFLOW_SERVER_ALLOWED_HOSTS) naming this one."
            )
        elif error.code < 500:
            return  # hosted servers answer 401 or 404 here; credentials show when the run starts
        problem = f"answered {error.code}"
    except (OSError, ValueError, HTTPException) as error:
        problem = f"did not answer within {_HEALTH_LIMIT_S:.0f} s: {error}"
    raise TrackingError(f"MLFLOW_TRACKING_URI = {shown_uri(uri)!r}: {problem}. {remedy}")


def _check_sqlite(uri: str) -> None:
    database = sqlite_path(uri)
    remedy = "Name a file in a folder that exists, such as sqlite:////folder/mlflow.db."
    if database is None:
        raise _refused(uri, "keeps its database in memory, lost between tasks", remedy)
    if not database.parent.is_dir():
        raise _refused(uri, f"{database.parent} is no folder", "Create it, or set another file.")
    if database.is_dir():
        raise _refused(uri, f"{database} is a folder, not a file", remedy)
    if not os.access(database if database.exists() else database.parent, os.W_OK):
        raise _refused(
            uri, "is not writable for this user", "Change its mode, or set another file."
        )


def _refused(uri: str, problem: str, remedy: str) -> MachineError:
    return MachineError(
        "MLflow store refused",
        [Problem("environment", "MLFLOW_TRACKING_URI", shown_uri(uri), problem, remedy)],
    )
