"""`subtext prosody`: measure, draw and convert the delivery of clips."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from subtext import strict_json
from subtext.errors import DataError, Problem

prosody_app = typer.Typer(help="Measure, draw and convert the delivery of clips.")


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
