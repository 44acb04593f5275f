"""`subtext plan`: what a run would do and need, before it costs anything."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console

from subtext import strict_json
from subtext.profiles import Profile, parse_assignments


def plan(
    profile: Annotated[str, typer.Option(help=f"Starting point: {', '.join(Profile)}.")] = "t4",
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="Turn one knob; repeatable."),
    ] = None,
    flavor: Annotated[
        str, typer.Option(help="Price by this hardware of Hugging Face Jobs, from the Hub's list.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Say what a run would need, how long it would take, and what is wrong, with remedies.

    Nothing is trained and no weights are loaded. Exit code 1 with problems, 2 for a configuration
    that can't be parsed, hardware without a price, or a Hub that does not tell it.
    """
    from subtext.hf_jobs.jobs import price_per_hour
    from subtext.plan.plan import make_plan
    from subtext.plan.tables import render_plan

    overrides = parse_assignments(assignments or [])
    with Console(stderr=True).status("looking at machine, data, model, Hub and MLflow"):
        if flavor:
            price = price_per_hour(flavor, os.environ.get("HF_TOKEN"))
            overrides.setdefault("training", {})["price_per_hour"] = round(price, 4)
        made = make_plan(profile, overrides, os.environ)
    if flavor:
        note = f"priced as {flavor}; device, memory and duration are those of this machine"
        made = replace(made, warnings=(note, *made.warnings))
    if as_json:
        typer.echo(strict_json.dumps(made.as_json()), nl=False)
    else:
        Console().print(render_plan(made), crop=False)
    if not made.ok:
        raise typer.Exit(1)
