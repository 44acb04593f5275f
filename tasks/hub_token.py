"""Where a task finds the Hub token. Never a parameter: Prefect shows parameters in clear text."""

from __future__ import annotations

import os

from prefect.blocks.system import Secret

BLOCK = "hf-token"


def environment_with_token() -> dict[str, str]:
    """Return the environment, with HF_TOKEN from the Secret block `hf-token` where it is not set.

    Without variable and block the result has no HF_TOKEN; the library says what that means.
    """
    environment = dict(os.environ)
    if environment.get("HF_TOKEN"):
        return environment
    try:
        environment["HF_TOKEN"] = Secret.load(BLOCK).get()  # type: ignore[union-attr]
    except ValueError:  # Prefect's word for "no such block"
        environment.pop("HF_TOKEN", None)
    return environment
