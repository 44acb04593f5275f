"""The console script `subtext`: prosody records, configuration, finished runs, the local Hub.

Parses, then delegates. Training is a flow and is started from the checkout, with
`prefect deployment run subtext/train` or `python -m flows.train_flow`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, get_args

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.table import Column, Table

from subtext import strict_json
from subtext.config import RunConfig
from subtext.errors import ConfigError, DataError, Problem, SubtextError
from subtext.paths import project_root
from subtext.profiles import Profile, parse_assignments, resolve
from subtext.summary import find_run, render_summary

app = typer.Typer(
    help="Train a small language model to tell sarcastic from sincere.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="What can be configured, and what a profile holds.")
prosody_app = typer.Typer(help="Prosody records from measured tracks.")
app.add_typer(config_app, name="config", no_args_is_help=True)
app.add_typer(prosody_app, name="prosody", no_args_is_help=True)


@prosody_app.command("from-tracks")
def prosody_from_tracks(
    tracks: Annotated[Path, typer.Argument(help="NPZ file: F0, intensity and HNR tracks a clip.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path(
        "prosody.json"
    ),
) -> None:
    """Turn pitch, energy and harmonicity tracks into the prosody.json that load_scenarios reads."""
    from subtext.prosody.from_tracks import records_from_npz

    content = records_from_npz(tracks)
    try:
        strict_json.write(output, content)
    except OSError as error:
        problem = Problem(
            "prosody from-tracks", "-o", str(output),
            f"can't be written: {error.strerror} ({error.filename})",
            "Name a file in a folder that you may write to.",
        )  # fmt: skip
        raise DataError("Output refused", [problem]) from error
    typer.echo(f"{len(content['clips'])} prosody records ({content['extractor']}) -> {output}")
    typer.echo("Next: put it beside sarcasm_data.json; the folder of both is data.root.")


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
        "type",
        "default",
        "meaning",
        title="Fields for --set and overrides",
    )
    for name in [section] if section else known:
        for row in _field_rows(name):
            table.add_row(*row)
    Console().print(table)


@app.command("show")
def show(
    run_directory: Annotated[
        Path, typer.Argument(help="Run directory, or the id of one in runs/.")
    ],
) -> None:
    """Show a finished run: accuracy of every pass, and where everything is."""
    Console().print(render_summary(find_run(run_directory)), crop=False)


@app.command("hub")
def hub(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0: a free one.")] = 0,
    root: Annotated[Path | None, typer.Option(help="Folder for what is published.")] = None,
) -> None:
    """Serve a Hugging Face Hub on this machine, to rehearse a publish before spending GPU hours."""
    from subtext.local_hub.__main__ import DEFAULT_ROOT
    from subtext.local_hub.__main__ import main as serve

    folder = root or project_root() / DEFAULT_ROOT
    raise typer.Exit(serve(["--root", str(folder), "--port", str(port)]))


def main() -> None:
    """Run the command line; a SubtextError is printed without traceback and ends with code 2."""
    try:
        app()
    except SubtextError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


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


if __name__ == "__main__":
    main()
