"""The picture of one clip: its sound above the lines of prosody that a model reads."""

from __future__ import annotations

import difflib
from pathlib import Path

from subtext.data.folder import AUDIO_FOLDER, resolve_data_root
from subtext.data.scenarios import load_scenarios
from subtext.errors import DataError, Problem
from subtext.prosody.audio import decode
from subtext.prosody.features import record_from_tracks
from subtext.prosody.plot import plot_clip
from subtext.prosody.render import render_pitch_contour, render_prosody_features
from subtext.prosody.sound_files import find_audio, is_sound_file
from subtext.prosody.tracks import measure_tracks


def draw_picture(clip: str, root: str = "", output: Path | None = None) -> Path:
    """Draw `clip`, an id of the corpus in `root` or a sound file; return the file written.

    `output` ends in .png or .svg; without it the picture is `<clip>.png` in the current folder. A
    sound file has no transcript, so neither title nor tempo. Raises DataError for a clip or sound
    that is not there or can't be measured, and for a picture that can't be written.
    """
    if is_sound_file(Path(clip)):
        path, title, utterance = Path(clip), Path(clip).name, None
    else:
        path, utterance = _clip_of_corpus(clip, resolve_data_root(root))
        title = f"{clip}: {utterance}"
    sound = decode(path)
    tracks = measure_tracks(sound, path.name)
    record = record_from_tracks(tracks, path.name, utterance)
    text = f"{render_prosody_features(clip, record)}\n{render_pitch_contour(clip, record)}"
    picture = output or Path(f"{path.stem}.png")
    plot_clip(sound, tracks, record, title, text.splitlines(), picture)
    return picture


def _clip_of_corpus(clip_id: str, folder: Path) -> tuple[Path, str]:
    scenarios = load_scenarios(folder)
    if clip_id not in scenarios:
        close = difflib.get_close_matches(clip_id, scenarios, n=3)
        remedy = f"Did you mean {' or '.join(close)}?" if close else "Name one of its clips."
        problem = Problem("prosody plot", "CLIP", clip_id, f"is no clip of {folder}", remedy)
        raise DataError("Clip refused", [problem])
    return find_audio(folder / AUDIO_FOLDER, clip_id), scenarios[clip_id]["utterance"]
