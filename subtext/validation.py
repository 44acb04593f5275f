"""What pydantic finds wrong, as problems."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from subtext.errors import Problem

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic.fields import FieldInfo


# In the words of JSON, where pydantic speaks of Python.
_SENTENCES = {
    "dict_type": "is no object",
    "extra_forbidden": "is no field",
    "list_type": "is no list",
    "missing": "is missing",
    "model_type": "is no object",
    "tuple_type": "is no list",
}


def problems_of(where: str, error: ValidationError, remedy: str) -> Iterator[Problem]:
    """Yield every fault of a file or answer that does not fit its model."""
    for detail in error.errors(include_url=False):
        field = ".".join(str(part) for part in detail["loc"])
        yield Problem(where, field or "content", _found(detail), sentence(detail), remedy)


def knob_problems(
    where: str, error: ValidationError, model: type[BaseModel], fields_command: str = ""
) -> Iterator[Problem]:
    """Yield every fault of a configuration of the kind `model`, each with what would be right.

    `fields_command` is the command that lists the fields, where there is one.
    """
    for detail in error.errors(include_url=False):
        path = [str(part) for part in detail["loc"]]
        remedy = _remedy(model, path, detail["type"], fields_command)
        if detail["type"] == "tuple_type" and isinstance(detail["input"], str):
            remedy = f"Write {json.dumps([detail['input']], ensure_ascii=False)}. {remedy}"
        yield Problem(where, ".".join(path) or "all", _found(detail), sentence(detail), remedy)


def sentence(detail: Any) -> str:
    """Return the message of one of `ValidationError.errors()` as a problem words it."""
    if detail["type"] in _SENTENCES:
        return _SENTENCES[detail["type"]]
    message = str(detail["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _found(detail: Any) -> object:
    """What stands where the fault is: nothing where a field is missing (pydantic: its owner)."""
    return None if detail["type"] == "missing" else detail["input"]


def fields_at(model: type[BaseModel], path: Sequence[str]) -> dict[str, FieldInfo]:
    """Return the fields of the section at `path` inside `model`; none where there is no section."""
    for name in path:
        field = model.model_fields.get(name)
        section = field.annotation if field else None
        if not (isinstance(section, type) and issubclass(section, BaseModel)):
            return {}
        model = section
    return dict(model.model_fields)


def _remedy(model: type[BaseModel], path: list[str], kind: str, fields_command: str) -> str:
    known = fields_at(model, path[:-1])
    if kind == "extra_forbidden":
        close = difflib.get_close_matches(path[-1], known, n=1)
        if close:
            return f"Did you mean {'.'.join([*path[:-1], close[0]])}?"
        return f"Known here: {', '.join(known)}."
    for depth in range(len(path), 0, -1):
        field = fields_at(model, path[: depth - 1]).get(path[depth - 1])
        if field is not None and field.description:
            return f"Meaning: {field.description}"
    return f"See `{fields_command}`." if fields_command else f"Known here: {', '.join(known)}."
