"""Which MLflow store is used, whether it answers, and clients for it."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from subtext.errors import MachineError, Problem, TrackingError
from subtext.paths import project_root

_SQLITE = "sqlite:///"
_SQLITE_HEADER = b"SQLite format 3\0"
_DATABASES = ("postgresql", "mysql", "mssql")
_PACKAGES = {"MySQLdb": "mysqlclient", "psycopg": "psycopg[binary]", "psycopg2": "psycopg2-binary"}
_USABLE = "Set sqlite:////folder/mlflow.db or the http:// address of a server"
_ANSWER_LIMIT_S = 5.0
_CHEAP_QUESTION = "/api/2.0/mlflow/experiments/search?max_results=1"
_LOCK_LIMIT_S = 120.0

# MLflow's own 7 retries of 120 s would hold a run for many minutes when the server is gone; our
# tasks retry too. 30 s leaves a server time to pass an adapter on to its own storage.
_CLIENT_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # with the password in the address
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
    try:
        netloc = urlsplit(uri).netloc
    except ValueError:  # no URL at all, such as http://[x
        return re.sub("//.*@", "//", uri)
    shown = uri.replace(netloc, netloc.rpartition("@")[2], 1)
    return re.sub(r"(?<=[?&]password=)[^&]*", "***", shown)


def check_reachable(uri: str) -> None:
    """Check, within a few seconds, that `uri` names a store that can be used.

    Raises MachineError for a store that can't work here (a file store, a missing folder or
    driver), and TrackingError for a server that doesn't answer. Databricks, MLflow's plugins and
    database servers answer only when the run starts.
    """
    scheme = uri.partition(":")[0].partition("+")[0].lower()
    if scheme in ("http", "https"):
        _check_server(uri)
    elif scheme == "sqlite":
        _check_sqlite(uri)
    elif scheme in _DATABASES:
        _check_driver(uri)
    elif scheme == "file" or ("://" not in uri and uri != "databricks"):
        raise _refused(
            uri, "names a folder, and MLflow 3 no longer writes to such file stores",
            f"{_USABLE}; `mlflow migrate-filestore` moves old runs.",
        )  # fmt: skip
    elif scheme not in ("databricks", *entry_points(group="mlflow.tracking_store").names):
        raise _refused(uri, f"{scheme}:// is no kind of store that MLflow knows", f"{_USABLE}.")


def client(uri: str) -> Any:
    """An `mlflow.MlflowClient` for `uri`, with bounded retries.

    The first client of a SQLite file creates its tables: one process at a time, since two must not
    migrate one file at once.
    """
    for name, value in _CLIENT_DEFAULTS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    with store_lock(uri):
        return MlflowClient(uri, registry_uri=uri)


@contextmanager
def store_lock(uri: str) -> Iterator[None]:
    """Keep other processes that ask for this lock from the SQLite file of `uri`.

    Other stores have no lock. It can't be taken twice, so make the client first. Raises OSError
    where another process keeps it for minutes.
    """
    database = sqlite_path(uri)
    if database is None:
        yield
        return
    from filelock import FileLock

    with FileLock(f"{database}.lock", timeout=_LOCK_LIMIT_S):
        yield


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
    try:
        parts = urlsplit(uri)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
    if not named:
        raise _refused(
            uri, "names no host, or no possible port", "Write for example http://127.0.0.1:5000."
        )
    # Without user and password: urllib takes them for a host name, and 401 is an answer too. Not
    # /health, which a server also answers to a host name that it refuses everywhere else.
    question = f"{shown_uri(uri).rstrip('/')}{_CHEAP_QUESTION}"
    remedy = (
        "Start it (`mlflow server`), correct MLFLOW_TRACKING_URI, or unset it to use mlflow.db."
    )
    try:
        with urllib.request.urlopen(question, timeout=_ANSWER_LIMIT_S):
            return
    except urllib.error.HTTPError as error:
        if error.code == 403:
            remedy = (
                "A server refuses host names it was not told of: start it with --allowed-hosts "
                f"(MLFLOW_SERVER_ALLOWED_HOSTS) naming '{urlsplit(question).hostname}:*'."
            )
        elif error.code < 500:
            return  # hosted servers answer 401 or 404 here; credentials show when the run starts
        problem = f"answered {error.code}"
    except (OSError, ValueError, HTTPException) as error:
        problem = f"did not answer within {_ANSWER_LIMIT_S:.0f} s: {error}"
    raise TrackingError(f"MLFLOW_TRACKING_URI = {shown_uri(uri)!r}: {problem}. {remedy}")


def _check_sqlite(uri: str) -> None:
    database = sqlite_path(uri)
    remedy = "Name a file in a folder that exists, such as sqlite:////folder/mlflow.db."
    if not uri.startswith(_SQLITE) and uri != "sqlite://":
        raise _refused(uri, "is not written sqlite:///file", remedy)
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
    if database.exists() and not _is_database(database):
        raise _refused(uri, f"{database} is there and is no SQLite database", "Set another file.")


def _is_database(path: Path) -> bool:
    """Whether SQLite can open the file: it may be empty."""
    if not path.is_file():
        return False  # a pipe would never end
    with path.open("rb") as file:
        return file.read(len(_SQLITE_HEADER)) in (b"", _SQLITE_HEADER)


def _check_driver(uri: str) -> None:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        make_url(uri).get_dialect().import_dbapi()
    except (ArgumentError, ValueError):
        raise _refused(
            uri, "is no database URL", "Write postgresql://user:password@host:5432/name."
        ) from None
    except ImportError as error:
        package = _PACKAGES.get(error.name or "", error.name)
        raise _refused(
            uri, f"its driver can't be imported: {error}",
            f"Install it (`pip install '{package}'`), or name another in the URL, as in "
            "mysql+pymysql://.",
        ) from error  # fmt: skip


def _refused(uri: str, problem: str, remedy: str) -> MachineError:
    return MachineError(
        "MLflow store refused",
        [Problem("environment", "MLFLOW_TRACKING_URI", shown_uri(uri), problem, remedy)],
    )
