"""`subtext data`: fetch a corpus, check it, make its Pivot Set."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from subtext.cli.root import ROOT_HELP, named_root


class CorpusName(StrEnum):
    """A corpus that can be fetched."""

    mustard = "mustard"


data_app = typer.Typer(help="Fetch a corpus, check it, make its Pivot Set.")


@data_app.command("fetch")
def data_fetch(
    corpus: Annotated[CorpusName, typer.Argument(help="Which corpus.")],
    root: Annotated[Path | None, typer.Option(help=ROOT_HELP, show_default=False)] = None,
    annotations_only: Annotated[
        bool, typer.Option("--annotations-only", help="Leave out the archive of clips.")
    ] = False,
) -> None:
    """Download MUStARD from its authors' places; what was begun is continued.

    Exit code 1 when members of the archive had to be refused, 2 when it can't go on.
    """
    from subtext.data.folder import data_root
    from subtext.data.sources.fetch import fetch, read_corpus, summary
    from subtext.progress import TerminalBar

    source = read_corpus()
    typer.echo("\n".join((source.title, f"Cite: {source.citation}", *source.licences, "")))
    with TerminalBar() as bar:
        folder = data_root(named_root(root))
        fetched = fetch(folder, annotations_only=annotations_only, watcher=bar)
    typer.echo(summary(fetched))
    if fetched.extraction and fetched.extraction.refused:
        raise typer.Exit(1)


Root = Annotated[Path | None, typer.Argument(help=ROOT_HELP, show_default=False)]


@data_app.command("validate")
def data_validate(
    root: Root = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, for machines.")
    ] = False,
) -> None:
    """Say what a corpus folder holds and what is wrong with it.

    Exit code 1 when something is wrong with the data, 2 when there is no such folder.
    """
    from rich.console import Console

    from subtext import strict_json
    from subtext.data.validate import validate
    from subtext.data.validate_table import render_report

    report = validate(named_root(root))
    if as_json:
        typer.echo(strict_json.dumps(report.as_json()), nl=False)
    else:
        Console().print(render_report(report), soft_wrap=False)
    if not report.ok:
        raise typer.Exit(1)


@data_app.command("pivot")
def data_pivot(
    root: Root = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change one setting; repeatable."),
    ] = None,
) -> None:
    """Make the Pivot Set: clips whose words alone mislead or do not decide.

    Settings: misleading_below, misleading_above, ambiguous_within, split_spread, min_voiced_s,
    refused_flags, n_folds, n_repeats, seed. `pivot_set.json` records them all.
    """
    from rich.console import Console

    from subtext.data.folder import PIVOT_FILE, resolve_data_root
    from subtext.data.pivot.file import parse_config
    from subtext.data.pivot.make import make_pivot_set, render_pivot
    from subtext.progress import TerminalBar

    config = parse_config(assignments or [])
    folder = resolve_data_root(named_root(root))
    with TerminalBar() as bar:
        content = make_pivot_set(folder, config, bar)
    Console().print(render_pivot(content))
    if not content["clips"]:
        typer.echo("No clip is in the Pivot Set: the words decide every admissible clip.")
    typer.echo(f"Words alone score {content['text_accuracy']['all']:.3f} on all clips.")
    typer.echo(f"{PIVOT_FILE} -> {folder / PIVOT_FILE}")
    typer.echo(f"Next: subtext data validate {shlex.quote(str(root or folder))}")
