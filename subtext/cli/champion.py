"""`subtext champion`: which registered version is the champion, and how it moves."""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from subtext.config import TrackingConfig
from subtext.errors import ConfigError, Problem
from subtext.printable import printable
from subtext.tracking.moves import not_undone

champion_app = typer.Typer(help="The registered version in use: show it, move it, move it back.")

_SHOWN_MOVES = 10

Name = Annotated[str, typer.Option("--name", help="Registered model.")]
Who = Annotated[
    str, typer.Option(help="Who decides, for the record.", show_default="the user's name")
]
DEFAULT_NAME = TrackingConfig().registered_model


@champion_app.command("show")
def champion_show(name: Name = DEFAULT_NAME) -> None:
    """Show champion and challenger, what the gate said of them, and the last moves."""
    from subtext.tracking import champion_overview

    Console().print(_overview(name, champion_overview(name)), crop=False)


@champion_app.command("move")
def champion_move(
    version: Annotated[int, typer.Argument(help="Version to make the champion.", min=1)],
    why: Annotated[str, typer.Option(help="Reason, for the record.")],
    who: Who = "",
    force: Annotated[
        bool, typer.Option("--force", help="Also a version that the gate did not promote.")
    ] = False,
    name: Name = DEFAULT_NAME,
) -> None:
    """Make VERSION the champion. One the gate held back needs --force, which is recorded."""
    from subtext.tracking import move_champion

    _tell(name, move_champion(name, version, who or _user(), why, force))


@champion_app.command("undo")
def champion_undo(
    why: Annotated[str, typer.Option(help="Reason, for the record.")] = "moved back by hand",
    who: Who = "",
    name: Name = DEFAULT_NAME,
) -> None:
    """Take the last move back; again, the one before."""
    from subtext.tracking import undo_champion

    _tell(name, undo_champion(name, who or _user(), why))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container's uid may have no name
        raise ConfigError(
            "Nobody to put on record",
            [Problem("command line", "--who", None, "this user has no name on this machine",
                     "Give one: --who NAME.")],
        ) from error  # fmt: skip


def _tell(name: str, move: Mapping[str, Any]) -> None:
    forced = " The gate had not promoted it; --force is on record." if move["forced"] else ""
    typer.echo(f"Champion of {name}: {_shown(move['from'])} -> {_shown(move['to'])}.{forced}")
    option = "" if name == DEFAULT_NAME else f" --name {name}"
    typer.echo(f"Next: subtext champion show{option}")
    if not move["undo"]:
        typer.echo(f"Back: subtext champion undo{option}")


def _overview(name: str, found: Mapping[str, Any]) -> Group:
    champion, challenger, history = found["champion"], found["challenger"], found["history"]
    rows = Table.grid(padding=(0, 2))
    for alias, version in (("champion", champion), ("challenger", challenger)):
        told = list(_told(version)) or ["none yet"]
        rows.add_row(Text(alias, style="bold"), Text(printable("\n".join(told)), overflow="fold"))
    parts: list[RenderableType] = [rows, Text()]
    if history:
        parts += [_moves(history), Text()]
    return Group(*parts, Text("Next:"), *(Text(f"  {line}") for line in _next(name, found)))


def _told(version: Mapping[str, Any] | None) -> Iterator[str]:
    if version is None:
        return
    run = f", run {version['run_name']}" if version["run_name"] else ""
    yield f"version {version['version']}{run}"
    decision = version["decision"]
    yield f"the gate said: {decision}" if decision else "the gate has not judged it"
    yield from (f"- {text}" for text in version["failed"])


def _moves(history: list[dict[str, Any]]) -> Table:
    table = Table(title="Moves, newest first", title_justify="left")
    for column in ("when (UTC)", "from", "to", "who", "why"):
        table.add_column(column, overflow="fold")
    for move in reversed(history[-_SHOWN_MOVES:]):
        note = " (undo)" if move["undo"] else " (forced)" if move["forced"] else ""
        cells = (
            move["when"][:16].replace("T", " "), _shown(move["from"]), _shown(move["to"]),
            move["who"], move["why"] + note,
        )  # fmt: skip
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _next(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    option = "" if name == DEFAULT_NAME else f" --name {name}"
    champion, challenger = found["champion"], found["challenger"]
    in_use = "champion" if champion else "challenger"
    yield f'subtext judge --line "Oh, great." --model models:/{name}@{in_use}'
    promoted = bool(challenger) and challenger["decision"] == "promote"
    if promoted and challenger["version"] != (champion or {}).get("version"):
        yield f"subtext champion move {challenger['version']} --why TEXT{option}"
    if not_undone(found["history"]):
        yield f"subtext champion undo{option}"


def _shown(version: int | None) -> str:
    return "none" if version is None else f"version {version}"
