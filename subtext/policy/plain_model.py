"""A model is data here: its weights are safetensors, and nothing in its files is run as a program.

transformers would load pickles where there are no safetensors, code and kernels that a
configuration names, and another base in place of a folder that is an adapter. Loading says
`use_safetensors=True` and `trust_remote_code=False` too; this says why, and before the weights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from subtext.errors import MachineError, Problem, reason_of

_CONFIG, _TOKENIZER = "config.json", "tokenizer_config.json"
_INDEX = "model.safetensors.index.json"
_ADAPTER = "adapter_config.json"
PARTS = frozenset((_TOKENIZER, _INDEX))
"""Files beside config.json that `check_plain` reads."""

_SHARD = re.compile(r"[A-Za-z0-9][\w.-]*\.safetensors")
_PICKLE = re.compile(r"(?:pytorch_model|model|adapter_model)\b.*\.(?:bin|pt|pth|ckpt|pkl|pickle)")
_KERNELS = ("attn_implementation", "_attn_implementation", "experts_implementation")
_SAFE = "Choose a model that transformers knows by itself, with weights in safetensors."
_CONVERT = "Where you trust it, load it elsewhere and save it again with save_pretrained."


_Fault = tuple[str, object, str, str]  # field, value, problem and remedy


def check_plain(model: str, folder: Path, names: Collection[str]) -> None:
    """Raise MachineError where the base `model`, whose files are called `names`, is more than data.

    `folder` holds config.json and those of PARTS that are among `names`.
    """
    where = f"base model {model}"
    try:
        problems = [Problem(where, *fault) for fault in _faults(folder, names)]
    except (OSError, ValueError) as error:
        said = f"holds a file that can't be read: {reason_of(error)}"
        problems = [Problem(where, "folder", str(folder), said, "Save or download it again.")]
    if problems:
        raise MachineError("The base model is refused", problems)


def pickled_weights(names: Collection[str]) -> list[str]:
    """Return those of `names` that are weights in a format which can run code when it is read."""
    return sorted(name for name in names if _PICKLE.fullmatch(name))


def _faults(folder: Path, names: Collection[str]) -> Iterator[_Fault]:
    if not any(_SHARD.fullmatch(name) for name in names):
        said = "are not in safetensors, and a pickle can run any program when it is read"
        yield "weights", pickled_weights(names) or None, said, _CONVERT
    if _ADAPTER in names:
        said = "makes it an adapter on another base, which would be loaded unasked"
        yield _ADAPTER, None, said, "Name the base model, and judge with the adapter by --model."
    for name in (_CONFIG, _TOKENIZER):
        if name == _CONFIG or name in names:
            yield from _code(name, _content(folder / name))
    if _INDEX in names:
        yield from _strays(_content(folder / _INDEX))


def _content(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises OSError or ValueError."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is no object")
    return content


def _code(name: str, content: dict[str, Any]) -> Iterator[_Fault]:
    """What of a configuration, parts of it included, names a program to be run."""
    pending: list[Any] = [content]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
            if code := value.get("auto_map"):
                said = "asks for code of its own to be run (trust_remote_code), which is never done"
                yield f"{name}: auto_map", code, said, _SAFE
            for key in _KERNELS:
                if "/" in str(value.get(key)):
                    said = "asks for kernels from the Hub to be run, which is never done"
                    yield f"{name}: {key}", value[key], said, "Remove it from a copy of the model."


def _strays(index: dict[str, Any]) -> Iterator[_Fault]:
    shards = index.get("weight_map")
    files = set(map(str, shards.values())) if isinstance(shards, dict) else {"weight_map"}
    if strays := sorted(file for file in files if not _SHARD.fullmatch(file)):
        said = "are no safetensors files beside it"
        yield _INDEX, strays, said, _CONVERT
