"""What pydantic finds wrong, as problems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from subtext.errors import Problem

if TYPE_CHECKING:
    from pydantic import ValidationError


def problems_of(where: str, error: ValidationError, remedy: str) -> Iterator[Problem]:
    """Yield every fault of a file or answer that does not fit its model."""
    for detail in error.errors(include_url=False):
        field = ".".join(str(part) for part in detail["loc"])
        yield Problem(where, field or "content", detail["input"], sentence(detail), remedy)


def sentence(detail: Any) -> str:
    """Return the message of one of `ValidationError.errors()` as a problem words it."""
    if detail["type"] == "extra_forbidden":
        return "is no field"
    message = str(detail["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]
