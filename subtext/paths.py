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


def cache_dir() -> Path:
    """`$SUBTEXT_CACHE`, else `subtext` in the user's cache folder."""
    if cache := os.environ.get("SUBTEXT_CACHE"):
        return Path(cache).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "subtext"
