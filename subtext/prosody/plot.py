"""A picture of one clip: waveform, pitch and intensity over time, and what the model reads of them.

Pitch is drawn after the repair of `repair.py`, in semitones from the clip's own median (right: Hz);
unvoiced gaps stay gaps, grey dots are frames that the repair moved or dropped. Bars are the slices
of the record's contour. Intensity is in dB from the clip's 95th percentile. Grey bands are the
pauses of the record. The same clip gives the same file.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from subtext import atomic
from subtext.errors import DataError, Problem, reason_of
from subtext.prosody.frames import Floats, Tracks, checked
from subtext.prosody.repair import repair
from subtext.prosody.span import SPEECH_BELOW_P95_DB, SpeechSpan, speech_span

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from subtext.prosody.audio import Sound

PLOT_SUFFIXES = (".png", ".svg")
_WIDTH_IN, _PANELS_IN, _LINE_IN = 10.0, 5.6, 0.19
_DPI = 150
_TITLE_CHARACTERS, _TITLE_LINES = 84, 3
_CUE_CHARACTERS = 56
_ENVELOPE_BINS = 1500
_LOWEST_DB, _HIGHEST_DB = -60.0, 8.0
_LEAST_ST = 3.0  # half the height of the pitch panel, so that a monotone voice looks like one
_INK, _PITCH, _SLICE, _LEVEL, _PAUSE = "#37474f", "#0b6e99", "#e07b00", "#6a4c93", "#b0bec5"
_MOVED = "#9e9e9e"


def plot_clip(
    sound: Sound,
    tracks: Tracks,
    record: Mapping[str, Any],
    title: str,
    cue_lines: Sequence[str],
    output: Path,
) -> None:
    """Draw one clip into `output`, a PNG or SVG file, in one step: the old picture or the new one.

    `tracks` and `record` are those of `sound`; `title` is the transcript, `cue_lines` the lines
    of prosody in the prompt. Raises DataError for another suffix and for a file that can't be
    written.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    kind = output.suffix.lower()
    if kind not in PLOT_SUFFIXES:
        remedy = f"End the file's name with {' or '.join(PLOT_SUFFIXES)}."
        _refuse(output, "is no kind of picture that is drawn here", remedy)
    settings = {"font.family": "DejaVu Sans", "font.size": 9, "svg.hashsalt": "subtext"}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A transcript may hold characters that the font lacks; they are drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = draw_clip(sound, tracks, record, title, cue_lines)
        FigureCanvasAgg(figure)
        made_at = {"Date": None} if kind == ".svg" else {"Software": None}
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=_DPI, metadata=made_at, format=kind[1:])
    try:
        atomic.write_bytes(output, drawn.getvalue())
    except OSError as error:
        remedy = "Name a file in a folder that you may write to, on a disk with room."
        _refuse(output, f"can't be written: {reason_of(error)}", remedy, error)


def _refuse(output: Path, problem: str, remedy: str, cause: Exception | None = None) -> NoReturn:
    found = Problem("prosody plot", "output", str(output), problem, remedy)
    raise DataError("Picture refused", [found]) from cause


def draw_clip(
    sound: Sound, tracks: Tracks, record: Mapping[str, Any], title: str, cue_lines: Sequence[str]
) -> Figure:
    """Return the picture of `plot_clip` as a matplotlib Figure of its own, outside pyplot."""
    from matplotlib.figure import Figure

    f0_hz, intensity_db, _, start_s = checked(tracks, "plot")
    span = speech_span(intensity_db, start_s[1], tracks.step_s)
    heading = textwrap.wrap(title, _TITLE_CHARACTERS, max_lines=_TITLE_LINES, placeholder=" …")
    cues = [textwrap.shorten(line, _CUE_CHARACTERS, placeholder=" …") for line in cue_lines]
    n_rows = (len(cues) + 1) // 2
    head_in, foot_in = 0.45 + 0.2 * max(1, len(heading)), 0.75 + _LINE_IN * n_rows
    height_in = head_in + _PANELS_IN + foot_in
    figure = Figure(figsize=(_WIDTH_IN, height_in))
    grid = figure.add_gridspec(
        3, 1, height_ratios=[1.0, 2.0, 1.2], hspace=0.1, left=0.085, right=0.92,
        top=1 - head_in / height_in, bottom=foot_in / height_in,
    )  # fmt: skip
    wave = figure.add_subplot(grid[0])
    pitch = figure.add_subplot(grid[1], sharex=wave)
    level = figure.add_subplot(grid[2], sharex=wave)
    _draw_wave(wave, sound)
    _draw_pitch(pitch, tracks, record, f0_hz, start_s[0], span)
    _draw_level(level, tracks, intensity_db, start_s[1])
    for axes in (wave, pitch, level):
        for start, stop in span.pauses_s:
            axes.axvspan(start, stop, color=_PAUSE, alpha=0.35, linewidth=0, label="pause")
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0)
        axes.label_outer()
    wave.set_xlim(0, tracks.duration_s)
    level.set_xlabel("time (s)")
    figure.align_ylabels([wave, pitch, level])
    figure.suptitle(
        "\n".join(heading), x=0.085, y=1 - 0.1 / height_in, ha="left", va="top", fontsize=11,
        fontweight="bold", parse_math=False,
    )  # fmt: skip
    handles, labels = pitch.get_legend_handles_labels()
    keys = dict(zip(labels, handles, strict=True))
    figure.legend(
        list(keys.values()), list(keys), loc="lower right", ncols=len(keys) or 1, frameon=False,
        bbox_to_anchor=(0.92, 1 - head_in / height_in), borderaxespad=0.1, fontsize=8,
    )  # fmt: skip
    top = (foot_in - 0.55) / height_in
    for column, start in ((0, 0), (1, n_rows)):
        figure.text(
            0.085 + 0.42 * column, top, "\n".join(cues[start : start + n_rows]),
            va="top", family="DejaVu Sans Mono", fontsize=8.5, color=_INK, linespacing=1.3,
            parse_math=False,
        )  # fmt: skip
    return figure


def _draw_wave(axes: Axes, sound: Sound) -> None:
    """Lowest and highest sample of each of at most 1,500 stretches."""
    bounds = np.linspace(0, sound.samples.size, min(_ENVELOPE_BINS, sound.samples.size) + 1)
    starts = bounds[:-1].astype(int)
    low = np.minimum.reduceat(sound.samples, starts)
    high = np.maximum.reduceat(sound.samples, starts)
    axes.fill_between(starts / sound.rate_hz, low, high, color=_INK, linewidth=0.3)
    limit = 1.05 * float(np.abs(sound.samples).max())
    axes.set_ylim(-limit, limit)
    axes.set_ylabel("amplitude\n(full scale 1)")


def _draw_pitch(
    axes: Axes, tracks: Tracks, record: Mapping[str, Any], f0_hz: Floats, start_s: float,
    span: SpeechSpan,
) -> None:  # fmt: skip
    axes.set_ylabel("pitch (st from\nthe clip's median)")
    median_hz = record["f0_median_hz"]
    if median_hz is None:
        axes.text(
            0.5, 0.5, "pitch: not measurable", ha="center", va="center", transform=axes.transAxes
        )
        axes.set_yticks([])
        return
    given_st = 12.0 * np.log2(f0_hz / median_hz)
    repaired_st, _, _ = repair(given_st, tracks.step_s)
    times_s = start_s + tracks.step_s * np.arange(f0_hz.size)
    changed = ~np.isnan(given_st) & ~(np.abs(given_st - repaired_st) < 1.0)
    axes.axhline(0, color=_INK, linewidth=0.6, alpha=0.5)
    if changed.any():
        axes.plot(
            times_s[changed], given_st[changed], ".", color=_MOVED, markersize=5,
            label="moved or dropped by the repair",
        )  # fmt: skip
    axes.plot(times_s, repaired_st, color=_PITCH, linewidth=2, label="pitch")
    edges = np.linspace(span.start_s, span.stop_s, len(record["contour_st"]) + 1)
    for value, left, right in zip(record["contour_st"], edges, edges[1:], strict=False):
        if value is not None:
            axes.plot(
                [left, right], [value, value], color=_SLICE, linewidth=3, alpha=0.6,
                solid_capstyle="butt", label="slice of the contour",
            )  # fmt: skip
    contour_st = [value for value in record["contour_st"] if value is not None]
    shown = np.concatenate((repaired_st, given_st[changed], contour_st))
    low = min(-_LEAST_ST, float(np.nanmin(shown)) - 1.0)
    high = max(_LEAST_ST, float(np.nanmax(shown)) + 1.0)
    axes.set_ylim(low, high)
    hertz = axes.secondary_yaxis(
        "right",
        functions=(
            lambda st: median_hz * 2.0 ** (np.asarray(st) / 12.0),
            lambda hz: 12.0 * np.log2(np.maximum(hz, 1.0) / median_hz),
        ),
    )
    ticks_st = axes.get_yticks()
    hertz.set_yticks(
        [round(median_hz * 2.0 ** (st / 12.0)) for st in ticks_st if low <= st <= high]
    )
    hertz.minorticks_off()
    hertz.set_ylabel("Hz")


def _draw_level(axes: Axes, tracks: Tracks, intensity_db: Floats, start_s: float) -> None:
    times_s = start_s + tracks.step_s * np.arange(intensity_db.size)
    relative_db = intensity_db - np.percentile(intensity_db, 95)
    axes.plot(times_s, relative_db, color=_LEVEL, linewidth=1.5)
    axes.axhline(-SPEECH_BELOW_P95_DB, color=_INK, linewidth=0.6, linestyle=":")
    axes.set_ylim(_LOWEST_DB, _HIGHEST_DB)
    axes.set_ylabel("intensity\n(dB from P95)")
