"""The last look at a file before it is sent to the Hub: what it is, and what it gives away."""

from __future__ import annotations

import os
from pathlib import Path

from subtext.run_dir import RunDir
from subtext.secrets_scan import (
    find_any_path,
    find_local_path,
    find_secret,
    known_secrets,
    local_folders,
)

# None of these can carry a pickle. .env, training_args.bin and optimizer.pt are not among them.
_SUFFIXES = {".jinja", ".json", ".md", ".model", ".safetensors", ".txt"}
_WORDS_OF_OTHERS = {"held_out_eval.json", "merges.txt", "tokenizer.json", "vocab.json"}
_LENGTH_BYTES = 8  # of the header's length, at the start of a safetensors file


def why_not_publish(path: Path, content: bytes, run: RunDir, token: str) -> str:
    """Say what forbids publishing the file at `path` of `run`, and the remedy; "" for nothing.

    `token` is the one in use, which is looked for besides the secrets of the environment.
    """
    checkpoints = run.checkpoints.values()
    if path.suffix not in _SUFFIXES or any(path.is_relative_to(folder) for folder in checkpoints):
        return "may hold a token, code or optimiser state. Move it out of the folder"
    if not path.resolve().is_relative_to(run.path.resolve()):
        return "is a link that leads out of the run directory. Put the file itself there"
    numbers = path.suffix == ".safetensors"
    text = _safetensors_header(content) if numbers else content
    if not text:
        return "is empty or cut. Copy it back, or repeat the step that writes it"
    secrets, folders = known_secrets({**os.environ, "HF_TOKEN": token}), local_folders(run.path)
    for part, encoded in [(text, True), *([(content, False)] if numbers else [])]:
        if secret := find_secret(part, secrets, encoded=encoded):
            return f"holds {secret}. Remove it from the file, and revoke it if it is real"
        if found := find_local_path(part, folders, encoded=encoded):
            return f"names a path of this machine, {found}. Remove it from the file"
    found = "" if path.name in _WORDS_OF_OTHERS else find_any_path(text)
    return f"names a path of some machine, {found}. Remove it from the file" if found else ""


def _safetensors_header(content: bytes) -> bytes:
    """The JSON at the start of a safetensors file; empty where the file is none or cut."""
    start, length = _LENGTH_BYTES, int.from_bytes(content[:_LENGTH_BYTES], "little")
    header = content[start : start + length]
    return header if header.startswith(b"{") and len(header) == length else b""
