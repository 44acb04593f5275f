"""Prosody from tracks: definitions on tones whose answer is known, and nulls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.tracks import N, tracks

from subtext.errors import DataError
from subtext.prosody.features import record_from_tracks
from subtext.prosody.schema import (
    FIELDS,
    QUALITY_FLAGS,
    SCHEMA,
    TRACKS_EXTRACTOR,
    record_problems,
)
from subtext.prosody.span import speech_span

STEP_S = 0.01


def glide(st_per_s: float, start_hz: float = 200.0) -> np.ndarray:
    return start_hz * 2.0 ** (st_per_s * STEP_S * np.arange(N) / 12)


def test_a_steady_voice() -> None:
    record = record_from_tracks(tracks())
    assert record == {
        "duration_s": 2.0,
        "f0_median_hz": 200.0,
        "f0_sd_st": 0.0,
        "f0_range_st": 0.0,
        "f0_slope_st_per_s": 0.0,
        "f0_final_slope_st_per_s": 0.0,
        "f0_final_move_st": 0.0,
        "f0_edge_fraction": 0.0,
        "octave_jump_fraction": 0.0,
        "octave_fix_fraction": 0.0,
        "short_run_fraction": 0.0,
        "voiced_s": 2.0,
        "voiced_fraction": 1.0,
        "intensity_sd_db": 0.0,
        "intensity_range_db": 0.0,
        "hnr_mean_db": 12.0,
        "jitter_local": None,
        "shimmer_local": None,
        "clipped_fraction": None,
        "pause_count": 0,
        "pause_longest_s": 0.0,
        "pause_longest_at": None,
        "pause_total_s": 0.0,
        "n_syllables": None,
        "speech_rate_syllables_per_s": None,
        "articulation_rate_syllables_per_s": None,
        "contour_st": [0.0] * 10,
        "quality": [],
    }


def test_a_record_keeps_its_own_schema_and_holds_every_field() -> None:
    record = record_from_tracks(tracks())
    assert not list(record_problems("tracks", record))
    assert record.keys() == {*FIELDS, "contour_st", "quality"}
    assert (SCHEMA, TRACKS_EXTRACTOR) == ("subtext.prosody/2", "subtext.prosody/2 tracks")


@pytest.mark.parametrize("st_per_s", [-6.0, 4.0])
def test_a_glide_has_its_slope_range_and_sd(st_per_s: float) -> None:
    record = record_from_tracks(tracks(glide(st_per_s)))
    assert record["f0_slope_st_per_s"] == pytest.approx(st_per_s, abs=0.01)
    assert record["f0_final_slope_st_per_s"] == pytest.approx(st_per_s, abs=0.05)
    assert record["f0_range_st"] == pytest.approx(0.9 * abs(st_per_s) * 1.99, abs=0.05)
    assert record["f0_sd_st"] == pytest.approx(abs(st_per_s) * 2 / math.sqrt(12), abs=0.02)
    assert np.all(np.diff(record["contour_st"]) * np.sign(st_per_s) > 0)


def test_the_final_slope_sees_the_last_half_second_only() -> None:
    f0_hz = glide(0.0)
    f0_hz[-50:] = 200.0 * 2.0 ** (-8.0 * STEP_S * np.arange(50) / 12)
    record = record_from_tracks(tracks(f0_hz))
    assert record["f0_final_slope_st_per_s"] == pytest.approx(-8.0, abs=0.3)
    assert abs(record["f0_slope_st_per_s"]) < 2
    assert record["f0_final_move_st"] == pytest.approx(-8.0 * 0.5, abs=0.15)


def test_a_short_end_moves_less_than_its_slope_over_half_a_second() -> None:
    f0_hz = np.full(N, np.nan)
    f0_hz[:100] = 200.0
    f0_hz[190:] = 200.0 * 2.0 ** (20.0 * STEP_S * np.arange(10) / 12)
    record = record_from_tracks(tracks(f0_hz))
    slope = record["f0_final_slope_st_per_s"]
    assert slope > 15
    assert record["f0_final_move_st"] == pytest.approx(slope * 0.09, abs=1e-3)


def test_the_range_is_p95_minus_p5_not_the_extremes() -> None:
    f0_hz = np.full(N, 200.0)
    f0_hz[:4], f0_hz[-4:] = 150.0, 260.0
    assert record_from_tracks(tracks(f0_hz))["f0_range_st"] == 0.0


@pytest.mark.parametrize("factor", [0.5, 2.0], ids=["octave down", "octave up"])
def test_an_octave_error_is_folded_back_and_counted(factor: float) -> None:
    f0_hz = np.full(N, 200.0)
    f0_hz[100:108] *= factor
    record = record_from_tracks(tracks(f0_hz))
    assert record["f0_sd_st"] == 0.0
    assert record["octave_fix_fraction"] == 8 / N
    assert record["octave_jump_fraction"] == pytest.approx(2 / (N - 1), abs=1e-4)


def test_an_octave_between_two_words_is_the_speakers_own() -> None:
    f0_hz = np.full(N, 150.0)
    f0_hz[90:100] = np.nan
    f0_hz[100:] = 300.0
    record = record_from_tracks(tracks(f0_hz))
    assert record["octave_fix_fraction"] == 0.0
    assert record["f0_range_st"] == pytest.approx(12.0)


def test_one_wild_frame_is_smoothed_away() -> None:
    f0_hz = np.full(N, 200.0)
    f0_hz[50] = 320.0
    record = record_from_tracks(tracks(f0_hz))
    assert (record["f0_sd_st"], record["octave_fix_fraction"]) == (0.0, 1 / N)


@pytest.mark.parametrize(("frames", "kept"), [(2, False), (3, True)], ids=["20 ms", "30 ms"])
def test_voiced_runs_below_30_ms_are_dropped_and_counted(frames: int, kept: bool) -> None:
    f0_hz = np.full(N, np.nan)
    f0_hz[:100] = 200.0
    f0_hz[150 : 150 + frames] = 210.0
    record = record_from_tracks(tracks(f0_hz))
    assert record["voiced_s"] == pytest.approx((100 + frames * kept) * STEP_S)
    expected = 0.0 if kept else frames / (100 + frames)
    assert record["short_run_fraction"] == pytest.approx(expected, abs=1e-4)


def test_frames_near_floor_or_ceiling_are_counted() -> None:
    record = record_from_tracks(tracks(pitch_floor_hz=195.0))
    assert record["f0_edge_fraction"] == 1.0


@pytest.mark.parametrize(
    ("frames", "count", "longest_s"),
    [(14, 0, 0.0), (15, 1, 0.15), (40, 1, 0.4)],
    ids=["140 ms", "150 ms", "400 ms"],
)
def test_an_inner_silence_of_150_ms_is_a_pause(frames: int, count: int, longest_s: float) -> None:
    intensity_db = np.full(N, 70.0)
    intensity_db[80 : 80 + frames] = 44.9
    record = record_from_tracks(tracks(intensity_db=intensity_db))
    assert (record["pause_count"], record["pause_longest_s"]) == (count, longest_s)
    assert record["pause_total_s"] == longest_s


@pytest.mark.parametrize(
    ("pauses", "at"),
    [
        ([(80, 120)], 0.5),
        ([(20, 40), (150, 190)], 0.85),
        ([(20, 40), (150, 170)], 0.15),
    ],
    ids=["in the middle", "the longer, late one", "the first of two equals"],
)
def test_where_the_longest_pause_is(pauses: list[tuple[int, int]], at: float) -> None:
    intensity_db = np.full(N, 70.0)
    for start, stop in pauses:
        intensity_db[start:stop] = 30.0
    record = record_from_tracks(tracks(intensity_db=intensity_db))
    assert record["pause_longest_at"] == at


def test_the_span_and_its_pauses_are_in_seconds() -> None:
    intensity_db = np.full(N, 20.0)
    intensity_db[50:150] = 70.0
    intensity_db[80:100] = 30.0
    span = speech_span(intensity_db, 0.005, STEP_S)
    assert (span.start_s, span.stop_s) == pytest.approx((0.5, 1.5))
    assert span.pauses_s == (pytest.approx((0.8, 1.0)),)


def test_rates_are_syllables_a_second_of_the_span_with_and_without_pauses() -> None:
    intensity_db = np.full(N, 20.0)
    intensity_db[:150] = 70.0
    intensity_db[50:100] = 30.0
    record = record_from_tracks(tracks(intensity_db=intensity_db), "c", "Oh, wonderful news.")
    assert record["n_syllables"] == 5
    assert record["speech_rate_syllables_per_s"] == pytest.approx(5 / 1.5, abs=1e-4)
    assert record["articulation_rate_syllables_per_s"] == pytest.approx(5 / 1.0, abs=1e-4)


@pytest.mark.parametrize("utterance", ["...", "\N{GRINNING FACE}", "\u4eca\u5929"])
def test_a_line_whose_syllables_cannot_be_counted_has_no_rate(utterance: str) -> None:
    record = record_from_tracks(tracks(), "c", utterance)
    names = ("n_syllables", "speech_rate_syllables_per_s", "articulation_rate_syllables_per_s")
    assert [record[name] for name in names] == [None] * 3


def test_a_transcript_that_nobody_can_say_in_the_time_is_refused() -> None:
    with pytest.raises(DataError, match=r"has 101 syllables for 2\.00 s of speech") as caught:
        record_from_tracks(tracks(), "clip 1_60", "no " * 101)
    assert (caught.value.problems[0].where, caught.value.problems[0].field) == (
        "clip 1_60",
        "utterance",
    )


def test_the_intensity_range_is_p95_minus_p5_at_voiced_frames() -> None:
    f0_hz = np.full(N, 200.0)
    f0_hz[:20] = np.nan
    intensity_db = np.linspace(60.0, 80.0, N)
    intensity_db[:20] = 100.0
    record = record_from_tracks(tracks(f0_hz, intensity_db))
    assert record["intensity_range_db"] == pytest.approx(0.9 * 179 * 20 / 199, abs=1e-3)


@pytest.mark.parametrize(("frames", "measured"), [(49, False), (50, True)])
def test_jitter_and_shimmer_need_half_a_second_of_voice(frames: int, measured: bool) -> None:
    f0_hz = np.full(N, np.nan)
    f0_hz[:frames] = 200.0
    record = record_from_tracks(tracks(f0_hz, jitter_local=0.01, shimmer_local=0.05))
    expected = (0.01, 0.05) if measured else (None, None)
    assert (record["jitter_local"], record["shimmer_local"]) == expected


def _voiced(frames: int) -> np.ndarray:
    f0_hz = np.full(N, np.nan)
    f0_hz[:frames] = 200.0
    return f0_hz


def _jumpy(jumps: int) -> np.ndarray:
    f0_hz = np.full(N, 200.0)
    for start in range(10, 10 + 20 * jumps // 2, 20):
        f0_hz[start : start + 4] = 400.0
    return f0_hz


FLAGS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("0.1 % of the samples clipped", {"clipped_fraction": 0.001}, ["clipped"]),
    ("fewer clipped", {"clipped_fraction": 0.0009}, []),
    ("4 voiced frames are no pitch", {"f0_hz": _voiced(4)}, ["no_voice"]),
    ("50 ms of voice", {"f0_hz": _voiced(5)}, ["little_voice"]),
    ("0.49 s of voice", {"f0_hz": _voiced(49)}, ["little_voice"]),
    ("0.5 s of voice", {"f0_hz": _voiced(50)}, []),
    ("2 jumps in 199 steps", {"f0_hz": _jumpy(2)}, []),
    ("4 jumps in 199 steps", {"f0_hz": _jumpy(4)}, ["octave_jumps"]),
    ("all at the floor", {"pitch_floor_hz": 195.0}, ["pitch_at_limit"]),
    (
        "two at once",
        {"clipped_fraction": 0.2, "f0_hz": _voiced(20), "pitch_ceiling_hz": 205.0},
        ["clipped", "little_voice", "pitch_at_limit"],
    ),
]


@pytest.mark.parametrize(
    ("changes", "flags"), [case[1:] for case in FLAGS], ids=[case[0] for case in FLAGS]
)
def test_quality_flags(changes: dict[str, Any], flags: list[str]) -> None:
    record = record_from_tracks(tracks(**changes))
    assert record["quality"] == flags
    assert set(flags) <= set(QUALITY_FLAGS)


@pytest.mark.parametrize(
    "quality",
    ["clipped", ["noisy"], ["no_voice", "clipped"], ["clipped", "clipped"], [["clipped"]], None],
    ids=["text", "unknown flag", "unsorted", "twice", "nested", "null"],
)
def test_a_record_with_other_flags_has_a_problem(quality: Any) -> None:
    record = {**record_from_tracks(tracks()), "quality": quality}
    assert [problem.field for problem in record_problems("c", record)] == ["quality"]


def test_25_db_below_p95_is_still_speech() -> None:
    intensity_db = np.full(N, 70.0)
    intensity_db[80:120] = 45.0
    assert record_from_tracks(tracks(intensity_db=intensity_db))["pause_count"] == 0


def test_silence_at_the_ends_is_no_pause_and_outside_the_span() -> None:
    f0_hz, intensity_db = np.full(N, np.nan), np.full(N, 20.0)
    intensity_db[50:150] = 70.0
    f0_hz[75:150] = 200.0
    record = record_from_tracks(tracks(f0_hz, intensity_db))
    assert record["pause_count"] == 0
    assert record["voiced_fraction"] == 0.75
    assert record["contour_st"] == [None, None, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_a_slice_below_30_percent_voiced_is_null() -> None:
    f0_hz = np.full(N, 200.0)
    f0_hz[5:20] = np.nan
    f0_hz[26:40] = np.nan
    assert record_from_tracks(tracks(f0_hz))["contour_st"][:3] == [None, 0.0, 0.0]


def test_contour_steps_are_half_semitones_from_the_clips_own_median() -> None:
    contour = record_from_tracks(tracks(glide(3.0)))["contour_st"]
    assert contour == record_from_tracks(tracks(glide(3.0, start_hz=100.0)))["contour_st"]
    assert all(value * 2 == round(value * 2) for value in contour)


def test_hnr_and_intensity_count_at_voiced_frames_only() -> None:
    f0_hz = np.full(N, 200.0)
    f0_hz[100:] = np.nan
    hnr_db, intensity_db = np.full(N, 12.0), np.full(N, 70.0)
    hnr_db[100:], intensity_db[100:] = 1.0, 55.0
    hnr_db[10] = np.nan
    record = record_from_tracks(tracks(f0_hz, intensity_db, hnr_db))
    assert (record["hnr_mean_db"], record["intensity_sd_db"]) == (12.0, 0.0)


def test_tracks_are_aligned_by_time_not_by_index() -> None:
    f0_hz = np.full(N, np.nan)
    f0_hz[100:150] = 200.0
    hnr_db = np.zeros(N - 10)
    hnr_db[90:140] = 12.0
    shifted = tracks(f0_hz, hnr_db=hnr_db, start_s=np.array([0.005, 0.005, 0.105]))
    assert record_from_tracks(shifted)["hnr_mean_db"] == 12.0


def test_nothing_voiced_is_null_never_zero() -> None:
    record = record_from_tracks(tracks(np.full(N, np.nan)))
    pitch = [name for name in record if name.startswith("f0_")]
    assert len(pitch) == 7
    nulls = [*pitch, "octave_jump_fraction", "octave_fix_fraction", "short_run_fraction"]
    assert [record[name] for name in (*nulls, "hnr_mean_db", "intensity_sd_db")] == [None] * 12
    assert record["intensity_range_db"] is None
    assert record["contour_st"] == [None] * 10
    assert (record["voiced_fraction"], record["voiced_s"]) == (0.0, 0.0)
    assert not list(record_problems("tracks", record))


@pytest.mark.parametrize(("frames", "measured"), [(4, False), (5, True)])
def test_pitch_needs_5_voiced_frames(frames: int, measured: bool) -> None:
    f0_hz = np.full(N, np.nan)
    f0_hz[50 : 50 + frames] = 200.0
    record = record_from_tracks(tracks(f0_hz))
    for name in ("f0_median_hz", "f0_sd_st", "f0_final_slope_st_per_s", "hnr_mean_db"):
        assert (record[name] is not None) is measured
