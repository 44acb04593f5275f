"""`subtext prosody`: measure, draw and convert the delivery of clips."""

from __future__ import annotations

import difflib
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
    clips: Annotated[
        Path | None,
        typer.Option(
            help="sarcasm_data.json: its transcripts give the speech rates.",
            show_default="no rates",
        ),
    ] = None,
) -> None:
    """Turn pitch, energy and harmonicity tracks into the prosody.json that load_scenarios reads."""
    from subtext.prosody.from_tracks import read_utterances, records_from_npz

    content = records_from_npz(tracks, None if clips is None else read_utterances(clips))
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
    clip: Annotated[str, typer.Argument(help="Clip id of the data root, or a sound file.")],
    root: Annotated[str, typer.Option("--root", help="Data root; default as data.root.")] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="PNG or SVG file; default CLIP.png.")
    ] = None,
) -> None:
    """Draw waveform, pitch and intensity of a clip above the lines of prosody that a model reads.

    The words low, medium and high are those of the published thresholds.
    """
    from subtext.data.scenarios import load_scenarios, resolve_data_root
    from subtext.prosody.audio import AUDIO_SUFFIXES, decode, find_audio
    from subtext.prosody.features import record_from_tracks
    from subtext.prosody.plot import plot_clip
    from subtext.prosody.render import render_pitch_contour, render_prosody_features
    from subtext.prosody.tracks import measure_tracks

    if clip.lower().endswith(AUDIO_SUFFIXES):
        path, title, utterance = Path(clip), Path(clip).name, None
    else:
        scenarios = load_scenarios(root)
        if clip not in scenarios:
            close = difflib.get_close_matches(clip, scenarios, n=3)
            remedy = f"Did you mean {' or '.join(close)}?" if close else "Name one of its clips."
            problem = Problem(
                "prosody plot", "CLIP", clip, f"is no clip of {resolve_data_root(root)}", remedy
            )
            raise DataError("Clip refused", [problem])
        path = find_audio(resolve_data_root(root) / "audio", clip)
        utterance = scenarios[clip]["utterance"]
        title = f"{clip}: {utterance}"
    sound = decode(path)
    tracks = measure_tracks(sound, path.name)
    record = record_from_tracks(tracks, path.name, utterance)
    cues = [render_prosody_features(clip, record), render_pitch_contour(clip, record)]
    target = output or Path(f"{path.stem}.png")
    plot_clip(sound, tracks, record, title, "\n".join(cues).splitlines(), target)
    typer.echo(f"{path.name} -> {target}")
