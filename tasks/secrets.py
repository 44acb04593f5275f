"""Where a task finds secrets. Never a parameter: Prefect shows parameters in clear text."""

from __future__ import annotations

import os

from prefect.blocks.system import Secret

from subtext.hf_jobs.config import TOKEN


def secret(name: str) -> str:
    """Return the environment variable `name`, else the content of its Secret block, else ""."""
    return os.environ.get(name, "").strip() or _stored(block_name(name))


def block_name(name: str) -> str:
    """The Secret block that stands for the variable `name`: `hf-token` for HF_TOKEN."""
    return name.lower().replace("_", "-")


def environment_with_token() -> dict[str, str]:
    """Return the environment, with HF_TOKEN from its Secret block where it is not set.

    Without variable and block the result has no HF_TOKEN; the library says what that means.
    """
    environment = {name: value for name, value in os.environ.items() if name != TOKEN}
    return {**environment, TOKEN: token} if (token := secret(TOKEN)) else environment


def _stored(block: str) -> str:
    try:
        return str(Secret.load(block).get()).strip()  # type: ignore[union-attr]
    except ValueError:  # Prefect's word for "no such block"
        return ""
