"""The console script `subtext`: data, prosody, configuration, runs and the models they made.

Parses, then delegates; each group of commands has its own file. Training and the preparation of
many clips are flows and are started from the checkout, with `prefect deployment run subtext/train`
or `python -m flows.train_flow`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from subtext.cli.champion import champion_app
from subtext.cli.compare import compare
from subtext.cli.config import config_app
from subtext.cli.data import data_app
from subtext.cli.judge import judge
from subtext.cli.plan import plan
from subtext.cli.prosody import prosody_app
from subtext.errors import SubtextError
from subtext.paths import project_root
from subtext.printable import printable
from subtext.summary import find_run, render_summary

app = typer.Typer(
    help="Train a small language model to tell sarcastic from sincere.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data", no_args_is_help=True)
app.add_typer(prosody_app, name="prosody", no_args_is_help=True)
app.add_typer(config_app, name="config", no_args_is_help=True)
app.add_typer(champion_app, name="champion", no_args_is_help=True)
app.command("plan")(plan)
app.command("judge")(judge)
app.command("compare")(compare)


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
        print(printable(str(error)), file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
