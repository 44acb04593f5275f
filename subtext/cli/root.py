"""How the commands name the folder of a corpus."""

from __future__ import annotations

from pathlib import Path

ROOT_HELP = "Folder of the corpus. Default: $SUBTEXT_DATA_ROOT, else data/mustard."


def named_root(root: Path | None) -> str:
    """Return the folder given to a command, relative to the current directory; "" for none."""
    return str(root.expanduser().absolute()) if root else ""
