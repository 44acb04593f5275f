"""The folder of a corpus: where it is, and the names of what lies in it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from subtext.errors import DataError, Problem
from subtext.paths import below_root, is_folder, project_root

CLIPS_FILE = "sarcasm_data.json"
PROSODY_FILE = "prosody.json"
PIVOT_FILE = "pivot_set.json"
AUDIO_FOLDER = "audio"
FOLDS_FILE = "official_folds.json"
AUTHORS_FOLDS_FILE = "split_indices.p"
_DEFAULT_ROOT = "data/mustard"
# sarcasm_data.json of the authors' repository at commit b34b513.
_MUSTARD_SHA256 = "ec9533032c5f143f197cb5fa5d4b29ab9bf56a20b0dc05d5b31d052f5957d39c"


def data_root(root: str = "") -> Path:
    """Return the folder of the clips: `root`, else $SUBTEXT_DATA_ROOT, else data/mustard.

    A relative path counts from the checkout. The folder need not be there yet.
    """
    given = root or os.environ.get("SUBTEXT_DATA_ROOT") or _DEFAULT_ROOT
    return below_root(given)


def resolve_data_root(root: str = "") -> Path:
    """Return `data_root(root)`. Raises DataError when there is no such folder."""
    path = data_root(root)
    if is_folder(path):
        return path
    in_environment = "$SUBTEXT_DATA_ROOT" if os.environ.get("SUBTEXT_DATA_ROOT") else ""
    source = "data.root" if root else in_environment or "default data root"
    problem = Problem(
        "data root", source, str(path), f"is no folder, so {CLIPS_FILE} is missing",
        "Fetch MUStARD (`python -m flows.data_flow --source mustard`), or name a folder with clips "
        "in data.root or $SUBTEXT_DATA_ROOT; data/demo comes with the checkout.",
    )  # fmt: skip
    raise DataError("No data", [problem])


def corpus_name(root: str = "") -> str:
    """Return "mustard" where the clips' hash says so, "demo" for data/demo, else ""."""
    folder = resolve_data_root(root)
    if hashlib.sha256((folder / CLIPS_FILE).read_bytes()).hexdigest() == _MUSTARD_SHA256:
        return "mustard"
    return "demo" if folder.resolve() == (project_root() / "data" / "demo").resolve() else ""
