"""`subtext config`: what can be configured, and what a profile holds."""

from __future__ import annotations

from typing import Annotated, get_args

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from subtext import strict_json
from subtext.config import RunConfig
from subtext.errors import ConfigError, Problem
from subtext.profiles import Profile, parse_assignments, resolve

config_app = typer.Typer(help="What can be configured, and what a profile holds.")


@config_app.command("show")
def config_show(
    profile: Annotated[Profile, typer.Option(help="Starting point.")] = Profile.t4,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="Turn one knob; repeatable."),
    ] = None,
) -> None:
    """Print the configuration a run would use, as JSON, after every check."""
    config = resolve(profile, parse_assignments(assignments or []))
    typer.echo(strict_json.dumps(config.model_dump(mode="json")), nl=False)


@config_app.command("fields")
def config_fields(
    section: Annotated[str, typer.Argument(help="Only this section, for example grpo.")] = "",
) -> None:
    """List every field with its type, default and meaning."""
    known = list(RunConfig.model_fields)
    if section and section not in known:
        problem = Problem(
            "command line", "section", section, "is no section", f"Choose of {known}."
        )
        raise ConfigError("Command refused", [problem])
    table = Table(
        Column("field", no_wrap=True),
        Column("type", overflow="fold"),
        Column("default", overflow="fold"),
        "meaning",
        title="Fields for --set and overrides",
    )
    for name in [section] if section else known:
        for row in _field_rows(name):
            table.add_row(*map(Text, row))
    Console().print(table)


def _field_rows(section: str) -> list[tuple[str, str, str, str]]:
    model = RunConfig.model_fields[section].annotation
    assert isinstance(model, type)
    assert issubclass(model, BaseModel)
    return [
        (f"{section}.{name}", _type_name(field), repr(field.default), field.description or "")
        for name, field in model.model_fields.items()
    ]


def _type_name(field: FieldInfo) -> str:
    kind = field.annotation
    choices = get_args(kind)
    if choices and not isinstance(choices[0], type):
        return " | ".join(map(str, choices))
    text = kind.__name__ if isinstance(kind, type) else "list of text"
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [
        f"{sign} {getattr(bound, name)}"
        for bound in field.metadata
        for name, sign in signs.items()
        if getattr(bound, name, None) is not None
    ]
    return ", ".join([text, *bounds])
