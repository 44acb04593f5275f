"""Profiles: named starting points, and how knobs are turned over them.

The TOML files beside this module list what differs from the defaults in `subtext.config`.
`resolve(Profile.cpu, {"grpo": {"max_steps": 3}})` gives the whole, validated configuration.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from importlib import resources
from typing import Any

from pydantic import BaseModel, ValidationError

from subtext.config import SPLITS_USING, RunConfig
from subtext.errors import ConfigError, Problem
from subtext.validation import fields_at, knob_problems


class Profile(StrEnum):
    """A named starting point; the TOML file of the same name holds its values."""

    demo = "demo"
    cpu = "cpu"
    t4 = "t4"
    gpu = "gpu"


def load_profile(profile: Profile | str) -> dict[str, Any]:
    """Return the values of a profile's TOML file. Raises ConfigError for an unknown name."""
    try:
        name = Profile(profile).value
    except ValueError:
        known = ", ".join(Profile)
        problem = Problem(
            "configuration", "profile", str(profile), "is no profile", f"Choose one of {known}."
        )
        raise ConfigError("Configuration refused", [problem]) from None
    text = resources.files(__package__).joinpath(f"{name}.toml").read_text("utf-8")
    return tomllib.loads(text)


def resolve(
    profile: Profile | str, overrides: Mapping[str, Any] | BaseModel | None = None
) -> RunConfig:
    """Merge `overrides` over `profile` and validate the whole.

    What the profile says of the split is left out where `overrides` choose a split that makes no
    use of it. Raises ConfigError, which lists every unknown key, bad value and pair of fields at
    odds.
    """
    given = overrides.model_dump() if isinstance(overrides, BaseModel) else dict(overrides or {})
    merged = _merge(_without_unused(load_profile(profile), given), given)
    try:
        return RunConfig.model_validate(merged)
    except ValidationError as error:
        problems = knob_problems("configuration", error, RunConfig, "subtext config fields")
        raise ConfigError("Configuration refused", list(problems)) from None


def _without_unused(profile: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    data, wanted = profile.get("data", {}), given.get("data")
    split = wanted.get("split") if isinstance(wanted, Mapping) else None
    if split is None:
        return dict(profile)
    unused = {name for name, splits in SPLITS_USING.items() if split not in splits}
    return {**profile, "data": {k: v for k, v in data.items() if k not in unused}}


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Turn `["grpo.max_steps=3", "publish.adapter_repo=me/judge"]` into nested overrides.

    A value is read as JSON where the field is no text and it is JSON (numbers, true, lists).
    Raises ConfigError when an assignment has no `section.field=value` shape.
    """
    overrides: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        section, dot, field = path.strip().partition(".")
        if not (equals and dot and section and field):
            problem = Problem(
                "command line", "--set", assignment, "is not section.field=value",
                "Write for example --set grpo.max_steps=3.",
            )  # fmt: skip
            raise ConfigError("Configuration refused", [problem])
        overrides.setdefault(section, {})[field] = _value(section, field, text)
    return overrides


def _value(section: str, field: str, text: str) -> Any:
    known = fields_at(RunConfig, [section]).get(field)
    if known is not None and known.annotation is str:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key, {}), Mapping):
            merged[key] = _merge(merged.get(key, {}), value)
        elif value is not None:
            merged[key] = value
    return merged
