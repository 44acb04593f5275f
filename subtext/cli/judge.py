"""`subtext judge`: one line, judged by a registered version or a run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from subtext import strict_json
from subtext.config import TrackingConfig
from subtext.errors import TrackingError
from subtext.printable import printable

if TYPE_CHECKING:
    from subtext.judge import Judge

_SHOWN = 300  # characters of an answer without reasoning
_STYLES = {"sarcastic": "bold magenta", "sincere": "bold green", None: "bold red"}


def judge(
    line: Annotated[str, typer.Option(help="The line to judge.")],
    context: Annotated[
        list[str] | None,
        typer.Option(metavar='"SPEAKER: TEXT"', help="A line before it; repeatable, oldest first."),
    ] = None,
    speaker: Annotated[str, typer.Option(help="Who says it.", show_default="unknown")] = "",
    audio: Annotated[
        str, typer.Option(metavar="FILE", help="Its sound or video.", show_default="words alone")
    ] = "",
    model: Annotated[
        str,
        typer.Option(
            help="models:/NAME@ALIAS, models:/NAME/VERSION, a run or an adapter.",
            show_default="the champion, else the challenger",
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Say whether a line is sarcastic or sincere, with the model's reasoning."""
    from subtext.judge_clips import measured_clips
    from subtext.tracking import load_judge

    [clip] = measured_clips([_clip(line, context or [], speaker, audio)], "line")
    with (
        Console(stderr=True).status("loading the model"),
        warnings.catch_warnings(record=True) as caught,
    ):
        uri, note = (model, "") if model else _default_model()
        loaded = load_judge(uri)
    for text in (note, *(str(item.message) for item in caught)):
        if text:
            typer.echo(printable(f"Note: {text}"), err=True)
    answer = {"model": uri, **loaded.judge([clip])[0], "prosody": _delivery(loaded, clip)}
    if as_json:
        typer.echo(strict_json.dumps(answer), nl=False)
    else:
        Console().print(_table(line, answer), crop=False)


def _clip(line: str, context: Sequence[str], speaker: str, audio: str) -> dict[str, Any]:
    split = [text.partition(":") for text in context]
    return {
        "utterance": line,
        "context": [said.strip() if colon else before for before, colon, said in split],
        "context_speakers": [name.strip() if colon else "OTHER" for name, colon, _ in split],
        "speaker": speaker or None,
        "audio": audio or None,
    }


def _default_model() -> tuple[str, str]:
    """Return the address of the model in use, and what is to be said of the choice."""
    from subtext.tracking import champion_overview

    name = TrackingConfig().registered_model
    found = champion_overview(name)
    if found["champion"]:
        return f"models:/{name}@champion", ""
    if found["challenger"]:
        return f"models:/{name}@challenger", f"{name} has no champion yet; its challenger judges"
    raise TrackingError(
        f"name = {name!r}: has neither champion nor challenger. Name a version with --model."
    )


def _delivery(loaded: Judge, clip: Mapping[str, Any]) -> str | None:
    return loaded.delivery(clip) if clip.get("prosody") else None


def _table(line: str, answer: Mapping[str, Any]) -> Table:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold")
    reasoning = answer["reasoning"] or f"none; it wrote: {answer['answer'][:_SHOWN]}"
    prosody = answer["prosody"] or "none: give --audio, and the delivery counts"
    label = answer["label"] or "none: the answer was malformed, so it counts as undecided"
    for name, text in (
        ("line", Text(printable(line))),
        ("label", Text(label, style=_STYLES[answer["label"]])),
        ("confidence", Text(f"{answer['confidence']:.2f}")),
        ("P(sarcastic)", Text(f"{answer['p_sarcastic']:.2f}")),
        ("reasoning", Text(printable(reasoning))),
        ("prosody read", Text(printable(prosody))),
        ("model", Text(printable(answer["model"]))),
    ):
        rows.add_row(name, text)
    return rows
