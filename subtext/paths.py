"""Where things live on this machine: the checkout, and the cache of converted models."""

from __future__ import annotations

import os
from pathlib import Path


def project_root() -> Path:
    """The checkout: `$SUBTEXT_HOME`, else the folder that holds this package and prefect.yaml,
    else the current directory (an installed wheel)."""
    if home := os.environ.get("SUBTEXT_HOME"):
        return Path(home).expanduser().resolve()
    beside = Path(__file__).resolve().parents[1]
    return beside if (beside / "prefect.yaml").exists() else Path.cwd()


def below_root(name: str) -> Path:
    """`name`, counted from the checkout where it is relative; an unknown `~user` stays as it is."""
    return Path(os.path.normpath(project_root() / os.path.expanduser(name)))  # noqa: PTH111


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder; a path that is too long or may not be looked at is none."""
    return os.path.isdir(path)  # noqa: PTH112


def cache_dir() -> Path:
    """`$SUBTEXT_CACHE`, else `subtext` in the user's cache folder."""
    if cache := os.environ.get("SUBTEXT_CACHE"):
        return Path(cache).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "subtext"
