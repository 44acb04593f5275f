"""`subtext compare`: two runs side by side, on the clips that both judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from subtext.figures import difference_text
from subtext.result_tables import rich_table
from subtext.summary import find_run

_RUN = "Run directory, or the id of one in runs/."
_COLUMNS = ("policy", "first", "second", "difference (95 %)", "verdict")


def compare(
    first: Annotated[Path, typer.Argument(help=_RUN)],
    second: Annotated[Path, typer.Argument(help=_RUN)],
) -> None:
    """Compare two runs on the clips that both judged; neither was trained on them."""
    from subtext.evaluation.compare_runs import compare_runs

    compared = compare_runs(find_run(first), find_run(second))
    one, other = compared["runs"]
    console = Console()
    console.print(Text(f"first:  {one}\nsecond: {other}"))
    rows = [_row(row) for row in compared["rows"]]
    console.print(rich_table("Accuracy, first minus second", _COLUMNS, rows), crop=False)
    console.print(Text(_reading_aid(compared)))
    for run_id in compared["unknown_training"]:
        note = (
            f"! Which clips the model of {run_id} was trained on is not known: it may know these."
        )
        console.print(Text(note, style="yellow"))


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["name"],
        f"{row['accuracy']:.3f}",
        f"{row['accuracy_against']:.3f}",
        difference_text(row),
        row["verdict"],
    )


def _reading_aid(compared: dict[str, Any]) -> str:
    said = f"{compared['n_shared']} clips judged by both"
    if compared["n_left_out"]:
        said += f"; {compared['n_left_out']} more, which only one of them judged, are left out"
    if gain := compared["smallest_gain"]:
        points = round(100 * gain)
        said += f". On so few, a true difference under {points} points would most likely go unseen"
    return f"{said}."
