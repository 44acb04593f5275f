"""Find registered models and versions, in a store that is there already."""

from __future__ import annotations

import re
from typing import Any

from subtext.errors import TrackingError
from subtext.tracking.store import (
    check_reachable,
    client,
    mlflow_errors,
    shown_uri,
    sqlite_path,
    tracking_uri,
)

MODEL_SCHEME = "models:/"
_MODEL_URI = re.compile(r"models:/(?P<name>[^/@:]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))")


def has_store(uri: str) -> bool:
    """Whether there is a store at `uri`; a server is taken to have one."""
    database = sqlite_path(uri)
    return database is None or database.exists()


def open_store() -> Any:
    """Return a client for the store, without making one where there is none.

    Raises MachineError or TrackingError.
    """
    uri = tracking_uri()
    check_reachable(uri)
    if not has_store(uri):
        raise TrackingError(
            f"MLFLOW_TRACKING_URI = {shown_uri(uri)!r}: no store is there yet. "
            "Train a run first (`make demo`), or name the store that has one."
        )
    return client(uri)


def registered(store: Any, name: str) -> Any | None:
    """Return the registered model `name`, or None where there is none."""
    from mlflow.exceptions import MlflowException

    try:
        return store.get_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def aliased(model: Any, alias: str) -> int | None:
    """Return the version that has `alias`, or None."""
    version = model.aliases.get(alias) if model is not None else None
    return None if version is None else int(version)


def find_version(uri: str) -> Any:
    """Return the version that `models:/name@alias` or `models:/name/version` names.

    Raises TrackingError that says what there is instead.
    """
    parts = _MODEL_URI.fullmatch(uri)
    if parts is None:
        raise TrackingError(
            f"model = {uri!r}: names no registered version. "
            "Write models:/<name>@<alias> or models:/<name>/<version>."
        )
    name, alias = parts["name"], parts["alias"]
    with mlflow_errors(f"look up {uri}"):
        store = open_store()
        model = registered(store, name)
        version = aliased(model, alias) if alias else int(parts["version"])
        if version is not None:
            return version_of(store, name, version)
    aliases = model.aliases if model is not None else {}
    there = ", ".join(f"{key} (version {value})" for key, value in aliases.items())
    raise TrackingError(
        f"model = {uri!r}: no version has this alias. Aliases of {name!r}: {there or 'none'}."
    )


def version_of(store: Any, name: str, version: int) -> Any:
    """Return a version by its number. Raises TrackingError that lists those there are."""
    found = {int(item.version): item for item in store.search_model_versions(f"name = '{name}'")}
    if version not in found:
        known = ", ".join(map(str, sorted(found))) or "none"
        raise TrackingError(
            f"version = {version}: the registered model {name!r} has no such version. "
            f"Choose of: {known}."
        )
    return found[version]
