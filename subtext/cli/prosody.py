"""`subtext prosody`: measure, draw and convert the delivery of clips."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from subtext import strict_json
from subtext.cli.root import ROOT_HELP, named_root
from subtext.errors import DataError, Problem, reason_of

prosody_app = typer.Typer(help="Measure, draw and convert the delivery of clips.")


@prosody_app.command("from-tracks")
def prosody_from_tracks(
    tracks: Annotated[Path, typer.Argument(help="NPZ file: F0, intensity and HNR tracks a clip.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path(
        "prosody.json"
    ),
    clips: Annotated[
        Path | None,
        typer.Option(
            help="sarcasm_data.json: its transcripts give the speech rates.",
            show_default="no rates",
        ),
    ] = None,
) -> None:
    """Turn pitch, energy and harmonicity tracks into the prosody.json of a corpus."""
    from subtext.data.scenarios import load_clips
    from subtext.prosody.from_tracks import records_from_npz

    utterances = None
    if clips is not None:
        utterances = {clip_id: clip["utterance"] for clip_id, clip in load_clips(clips).items()}
    content = records_from_npz(tracks, utterances)
    try:
        strict_json.write(output, content)
    except OSError as error:
        problem = Problem(
            "prosody from-tracks", "-o", str(output),
            f"can't be written: {reason_of(error)} ({error.filename})",
            "Name a file in a folder that you may write to.",
        )  # fmt: skip
        raise DataError("Output refused", [problem]) from error
    typer.echo(f"{len(content['clips'])} prosody records ({content['extractor']}) -> {output}")
    typer.echo("Next: put it beside sarcasm_data.json; the folder of both is data.root.")


@prosody_app.command("measure")
def prosody_measure(
    file: Annotated[Path, typer.Argument(help="Sound or video file of one line.")],
    text: Annotated[
        str | None,
        typer.Option(help="What is said: gives the speech rates.", show_default="no rates"),
    ] = None,
) -> None:
    """Print the prosody record of one sound file as JSON."""
    from subtext.prosody.measure import measure_clip

    typer.echo(strict_json.dumps(measure_clip(file, text, file.name)), nl=False)


@prosody_app.command("plot")
def prosody_plot(
    clip: Annotated[str, typer.Argument(help="Clip id of the corpus, or a sound file.")],
    root: Annotated[Path | None, typer.Option(help=ROOT_HELP, show_default=False)] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="PNG or SVG file; default CLIP.png.")
    ] = None,
) -> None:
    """Draw waveform, pitch and intensity of a clip above the lines of prosody that a model reads.

    Low, medium and high are by the terciles of 210 MUStARD clips; a training run has its own.
    """
    from subtext.data.picture import draw_picture

    folder = named_root(root)
    picture = draw_picture(clip, folder, output)
    typer.echo(f"{clip} -> {picture}")
