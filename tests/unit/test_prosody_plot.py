"""The picture of a clip: what it shows is what was measured, readable, and the same each time."""

from __future__ import annotations

import os
import subprocess
import sys
import wave
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from support.corpus import write_corpus
from support.disk import no_room
from typer.testing import CliRunner

from subtext.cli.main import app
from subtext.errors import DataError
from subtext.prosody.audio import RATE_HZ, Sound
from subtext.prosody.features import record_from_tracks
from subtext.prosody.frames import Tracks
from subtext.prosody.plot import draw_clip, plot_clip
from subtext.prosody.render import render_pitch_contour, render_prosody_features
from subtext.prosody.span import speech_span
from subtext.prosody.tracks import measure_tracks

ROOT = Path(__file__).resolve().parents[2]
LINE = "Oh, great, $5 for a_very^long \\frac meeting about the meeting."


def voice(*f0_hz: float, pause_s: float = 0.3) -> Sound:
    """Half a second of buzz a given pitch, 0 = noise, with silence between."""
    time_s = np.arange(RATE_HZ // 2) / RATE_HZ
    noise = np.random.default_rng(0).standard_normal(time_s.size) / 3
    parts = []
    for hertz in f0_hz:
        buzz = sum(np.sin(2 * np.pi * hertz * n * time_s) / n for n in range(1, 9))
        parts += [0.1 * (buzz if hertz else noise), np.zeros(int(pause_s * RATE_HZ))]
    return Sound(np.concatenate(parts), RATE_HZ, 0.0)


def measured(sound: Sound) -> tuple[Sound, Tracks, dict[str, Any]]:
    tracks = measure_tracks(sound)
    return sound, tracks, record_from_tracks(tracks, "test", LINE)


def cues(record: dict[str, Any]) -> list[str]:
    features, contour = render_prosody_features("x", record), render_pitch_contour("x", record)
    return f"{features}\n{contour}".splitlines()


def panels(figure: Figure) -> list[Axes]:
    return list(figure.axes)


SPEECH = measured(voice(120, 180, 140))


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml")])
def test_the_same_clip_gives_the_same_file(tmp_path: Path, name: str, magic: bytes) -> None:
    files = [tmp_path / folder / name for folder in "xy"]
    for path in files:
        path.parent.mkdir()
        plot_clip(*SPEECH, LINE, cues(SPEECH[2]), path)
    first, second = (path.read_bytes() for path in files)
    assert first == second
    assert first.startswith(magic)


def test_pitch_is_drawn_as_measured_and_gaps_stay_gaps() -> None:
    record = SPEECH[2]
    pitch = panels(draw_clip(*SPEECH, LINE, []))[1]
    (line,) = [line for line in pitch.lines if line.get_label() == "pitch"]
    times_s, drawn_st = (np.asarray(values) for values in line.get_data())
    in_pause = (times_s > 0.6) & (times_s < 0.7)
    assert np.isnan(drawn_st[in_pause]).all()
    assert np.nanmedian(drawn_st) == pytest.approx(0.0, abs=1e-4)
    in_second = (times_s > 0.9) & (times_s < 1.2)
    expected_st = 12 * np.log2(180 / record["f0_median_hz"])
    np.testing.assert_allclose(drawn_st[in_second], expected_st, atol=0.1)
    (hertz,) = pitch.child_axes
    for tick in hertz.get_yticks():
        assert tick == round(tick)
    slices = [line for line in pitch.lines if line.get_label() == "slice of the contour"]
    values = [line.get_ydata()[0] for line in slices]
    assert values == [value for value in record["contour_st"] if value is not None]


def test_the_pauses_of_the_record_are_shaded_in_every_panel() -> None:
    record = SPEECH[2]
    assert record["pause_count"] == 2
    for axes in panels(draw_clip(*SPEECH, LINE, [])):
        widths = [patch.get_width() for patch in axes.patches]
        assert len(widths) == 2
        assert sum(widths) == pytest.approx(record["pause_total_s"], abs=1e-3)


def test_frames_that_the_repair_moved_stay_visible() -> None:
    sound, tracks, _ = SPEECH
    f0_hz = np.array(tracks.f0_hz)
    voiced = np.flatnonzero(~np.isnan(f0_hz))[10:13]
    f0_hz[voiced] *= 2
    jumped = replace(tracks, f0_hz=f0_hz)
    record = record_from_tracks(jumped)
    pitch = panels(draw_clip(sound, jumped, record, LINE, []))[1]
    (dots,) = [line for line in pitch.lines if line.get_label().startswith("moved")]
    low, high = pitch.get_ylim()
    values = np.asarray(dots.get_ydata())
    assert values.size >= 3
    assert ((values > low) & (values < high)).all()


def test_a_clip_without_voice_says_so() -> None:
    noise = measured(voice(0.0))
    pitch = panels(draw_clip(*noise, LINE, cues(noise[2])))[1]
    assert [text.get_text() for text in pitch.texts] == ["pitch: not measurable"]


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize(
    ("title", "n_cues"),
    [("", 0), ("No.", 1), (LINE, 13), (" ".join([LINE] * 8), 14), ("x" * 400, 30), ("漢字 $", 12)],
    ids=["nothing", "short", "usual", "long line", "no spaces", "glyphs the font lacks"],
)
def test_nothing_overlaps_and_nothing_leaves_the_picture(title: str, n_cues: int) -> None:
    figure = draw_clip(*SPEECH, title, ["loudness variation: medium"] * n_cues)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
    texts = [text for text in figure.texts if text.get_text()]
    boxes += [text.get_window_extent(renderer) for text in texts]
    boxes += [legend.get_window_extent(renderer) for legend in figure.legends]
    for one, other in combinations([box.padded(-1) for box in boxes], 2):
        assert not one.overlaps(other)
    for box in boxes:
        assert box.x0 >= 0 and box.y0 >= 0
        assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1


def test_the_transcript_is_printed_as_it_is() -> None:
    figure = draw_clip(*SPEECH, LINE, ["a_b^c $x$"])
    assert figure.get_suptitle().replace("\n", " ") == LINE
    assert "a_b^c $x$" in [text.get_text() for text in figure.texts]
    assert not any(text.get_parse_math() for text in figure.texts)


def test_no_global_state_of_matplotlib_is_touched(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, matplotlib, unit.test_prosody_plot as test\n"
        "before = matplotlib.rcParams.copy()\n"
        "test.plot_clip(*test.SPEECH, 'x', [], pathlib.Path(sys.argv[1]))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert before == matplotlib.rcParams.copy()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a.png")],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a.jpg", "no kind of picture"),
        ("a", "no kind of picture"),
        ("file/a.png", "can't be written"),
        ("folder.png", "no regular file"),
    ],
    ids=["another kind", "no suffix", "a file for a folder", "a folder of that name"],
)
def test_a_picture_that_cannot_be_written_is_refused(
    tmp_path: Path, name: str, problem: str
) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=problem):
        plot_clip(*SPEECH, LINE, [], tmp_path / name)


def test_a_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    plot_clip(*SPEECH, LINE, [], tmp_path / "pictures" / "a.png")
    assert (tmp_path / "pictures" / "a.png").stat().st_size


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_a_full_disk_leaves_the_old_picture(tmp_path: Path, name: str) -> None:
    plot_clip(*SPEECH, LINE, [], tmp_path / name)
    before = (tmp_path / name).read_bytes()
    with pytest.raises(DataError, match="File too large"), no_room(4096):
        plot_clip(*SPEECH, "Another line.", [], tmp_path / name)
    assert (tmp_path / name).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_link_to_a_picture_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.png").symlink_to("a.png")
    plot_clip(*SPEECH, LINE, [], tmp_path / "link.png")
    assert (tmp_path / "link.png").is_symlink()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@given(
    levels=st.lists(st.floats(-100, 100), min_size=1, max_size=200),
    start_s=st.floats(0, 1),
)
def test_the_span_agrees_with_the_record(levels: list[float], start_s: float) -> None:
    intensity_db = np.array(levels)
    tracks = Tracks(
        f0_hz=[np.nan], intensity_db=intensity_db, hnr_db=[np.nan],
        start_s=[0.0, start_s, 0.0], duration_s=start_s + 2.0, pitch_floor_hz=75.0,
        pitch_ceiling_hz=600.0,
    )  # fmt: skip
    record = record_from_tracks(tracks)
    span = speech_span(intensity_db, start_s, 0.01)
    lengths_s = [stop - start for start, stop in span.pauses_s]
    assert len(lengths_s) == record["pause_count"]
    assert sum(lengths_s) == pytest.approx(record["pause_total_s"], abs=1e-3)
    assert max(lengths_s, default=0.0) == pytest.approx(record["pause_longest_s"], abs=1e-3)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    root = write_corpus(tmp_path / "corpus", n_clips=4)
    (root / "audio").mkdir()
    return root


def save(sound: Sound, path: Path) -> Path:
    with wave.open(str(path), "wb") as stream:
        stream.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        stream.writeframes((32767 * sound.samples).astype("<i2").tobytes())
    return path


def plot(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["prosody", "plot", *map(str, arguments)])


def test_the_command_draws_a_clip_of_the_data_root(corpus: Path, tmp_path: Path) -> None:
    clip_id = "1_100"
    save(SPEECH[0], corpus / "audio" / f"{clip_id}.wav")
    done = plot(clip_id, "--root", corpus, "-o", tmp_path / "a.png")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_draws_a_sound_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(SPEECH[0], tmp_path / "line.wav")
    monkeypatch.chdir(tmp_path)
    done = plot(path)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "line.png").exists()


def test_the_command_refuses_what_is_no_clip(corpus: Path) -> None:
    error = plot("1_10", "--root", corpus).exception
    assert isinstance(error, DataError)
    assert "is no clip of" in str(error)
    assert "Did you mean" in str(error)
    without_sound = plot("1_100", "--root", corpus).exception
    assert isinstance(without_sound, DataError)
    assert "no sound file is there" in str(without_sound)
