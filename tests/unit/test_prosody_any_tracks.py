"""Tracks that nobody has in mind: refused by name, or measured; drawn by hypothesis or extreme."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tracks import N, tracks

from subtext import strict_json
from subtext.errors import DataError
from subtext.prosody.features import record_from_tracks
from subtext.prosody.frames import Tracks
from subtext.prosody.schema import record_problems

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("no frames", {"f0_hz": np.array([])}, "f0_hz"),
    ("no intensity", {"intensity_db": np.array([])}, "intensity_db"),
    ("two dimensions", {"hnr_db": np.zeros((2, 3))}, "hnr_db"),
    ("text", {"hnr_db": np.array(["a"])}, "hnr_db"),
    ("F0 of 0 for unvoiced", {"f0_hz": np.array([200.0, 0.0])}, "f0_hz[1]"),
    ("negative F0", {"f0_hz": np.array([-1.0])}, "f0_hz[0]"),
    ("infinite F0", {"f0_hz": np.array([np.inf])}, "f0_hz[0]"),
    ("intensity NaN", {"intensity_db": np.array([70.0, np.nan])}, "intensity_db[1]"),
    ("intensity of digital silence", {"intensity_db": np.array([-np.inf])}, "intensity_db[0]"),
    ("intensity of no instrument", {"intensity_db": np.array([70.0, 1e300])}, "intensity_db[1]"),
    ("F0 of a radio", {"f0_hz": np.array([200.0, 1e308])}, "f0_hz[1]"),
    ("jitter NaN", {"jitter_local": math.nan}, "jitter_local"),
    ("shimmer infinite", {"shimmer_local": math.inf}, "shimmer_local"),
    ("negative clipping", {"clipped_fraction": -0.1}, "clipped_fraction"),
    ("more clipped than there is", {"clipped_fraction": 1.5}, "clipped_fraction"),
    ("a pitch no throat has", {"f0_hz": np.full(N, 1e-3)}, "f0_median_hz"),
    ("infinite HNR", {"hnr_db": np.array([1.0, np.inf])}, "hnr_db[1]"),
    ("two starts", {"start_s": np.array([0.0, 0.0])}, "start_s"),
    ("start NaN", {"start_s": np.array([0.0, np.nan, 0.0])}, "start_s"),
    ("negative start", {"start_s": np.array([0.0, -1.0, 0.0])}, "start_s"),
    ("no duration", {"duration_s": 0.0}, "duration_s"),
    ("duration NaN", {"duration_s": math.nan}, "duration_s"),
    ("step of 0", {"step_s": 0.0}, "step_s"),
    ("step of a nanosecond", {"step_s": 1e-9}, "step_s"),
    ("floor above ceiling", {"pitch_floor_hz": 700.0}, "pitch_floor_hz"),
    ("track longer than the clip", {"duration_s": 1.0}, "f0_hz"),
]


@pytest.mark.parametrize(
    ("changes", "field"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_bad_tracks_are_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(DataError) as caught:
        record_from_tracks(tracks(**changes), "clip 1_60")
    problem = caught.value.problems[0]
    assert (problem.where, problem.field) == ("clip 1_60", field)
    assert problem.remedy


def test_every_problem_is_gathered() -> None:
    bad = tracks(f0_hz=[-1.0], intensity_db=[np.nan], duration_s=-1.0)
    with pytest.raises(DataError) as caught:
        record_from_tracks(bad)
    assert [p.field for p in caught.value.problems] == ["f0_hz[0]", "intensity_db[0]", "duration_s"]


def track(values: st.SearchStrategy[float], max_size: int = 120) -> st.SearchStrategy[list[float]]:
    return st.lists(values, max_size=max_size)


NOTHING = st.just(math.nan)
F0 = track(NOTHING | st.floats(75, 600)).filter(len)
LEVELS = track(st.floats(-50, 100)).filter(len)
RATIOS = track(NOTHING | st.floats(-20, 40)).filter(len)


@given(F0, LEVELS, RATIOS)
def test_any_valid_tracks_give_a_valid_strict_json_record_twice_the_same(
    f0_hz: list[float], intensity_db: list[float], hnr_db: list[float]
) -> None:
    made = tracks(f0_hz, intensity_db, hnr_db)
    record = record_from_tracks(made)
    assert not list(record_problems("tracks", record))
    assert json.dumps(record, allow_nan=False) == json.dumps(record_from_tracks(made))


ANY_FLOAT = st.floats()
ANY_TRACK = track(ANY_FLOAT).map(np.array) | st.just(np.full(50, math.nan))
# The usual and the unusual of every field; one example has at most two unusual fields.
USUAL: dict[str, st.SearchStrategy[Any]] = {
    "f0_hz": F0.map(np.array),
    "intensity_db": LEVELS.map(np.array),
    "hnr_db": RATIOS.map(np.array),
    "start_s": st.just(np.array([0.005, 0.045, 0.015])),
    "duration_s": st.floats(1.3, 20),
    "pitch_floor_hz": st.floats(60, 100),
    "pitch_ceiling_hz": st.floats(300, 700),
    "step_s": st.just(0.01),
    "jitter_local": st.none() | st.floats(0, 0.2),
    "shimmer_local": st.none() | st.floats(0, 0.5),
    "clipped_fraction": st.none() | st.floats(0, 1),
}
UNUSUAL = {
    name: ANY_TRACK if name in ("f0_hz", "intensity_db", "hnr_db", "start_s") else ANY_FLOAT
    for name in USUAL
} | {"duration_s": st.sampled_from([0.0, 0.005, 0.02, 600.0, 3600.0]) | ANY_FLOAT}


@given(st.data(), st.sets(st.sampled_from(sorted(USUAL)), max_size=2), st.none() | st.text())
def test_any_tracks_give_a_valid_record_or_an_error_that_names_the_field(
    data: st.DataObject, unusual: set[str], utterance: str | None
) -> None:
    fields = {
        name: data.draw((UNUSUAL if name in unusual else USUAL)[name], label=name) for name in USUAL
    }
    try:
        record = record_from_tracks(Tracks(**fields), "clip", utterance)
    except DataError as error:
        assert all(problem.field and problem.remedy for problem in error.problems)
        assert unusual or {problem.field for problem in error.problems} == {"utterance"}
    else:
        assert not list(record_problems("clip", record))
        strict_json.dumps(record)


@pytest.mark.parametrize("voice", ["all unvoiced", "all voiced", "mixed"])
def test_ten_minutes_are_measured(voice: str) -> None:
    n = 60_000
    rng = np.random.default_rng(0)
    f0_hz = 200.0 * 2.0 ** (rng.normal(0, 2, n) / 12)
    unvoiced_share = {"all unvoiced": 1.0, "all voiced": 0.0, "mixed": 0.5}[voice]
    f0_hz[rng.random(n) < unvoiced_share] = np.nan
    made = tracks(f0_hz, rng.normal(60, 8, n), np.full(n, 9.0), duration_s=600.0)
    record = record_from_tracks(made, "clip", "one line")
    assert record["duration_s"] == 600.0
    strict_json.dumps(record)


@pytest.mark.parametrize("f0_hz", [math.nan, 200.0])
def test_one_frame_is_measured(f0_hz: float) -> None:
    record = record_from_tracks(tracks([f0_hz], [70.0], [12.0], duration_s=0.02))
    assert (record["f0_median_hz"], record["quality"]) == (None, ["no_voice"])


@given(st.floats(-30, 30), st.floats(0.7, 1.4))
def test_recording_level_and_register_change_only_the_median(gain_db: float, ratio: float) -> None:
    rng = np.random.default_rng(0)
    f0_hz = 200 * 2 ** (np.cumsum(rng.normal(0, 0.3, N)) / 12)
    intensity_db = 70 + rng.normal(0, 3, N)
    plain = record_from_tracks(tracks(f0_hz, intensity_db))
    moved = record_from_tracks(tracks(f0_hz * ratio, intensity_db + gain_db))
    for name in ("f0_sd_st", "f0_range_st", "f0_slope_st_per_s", "intensity_sd_db", "pause_count"):
        assert moved[name] == pytest.approx(plain[name], abs=2e-4)
    assert moved["f0_median_hz"] == pytest.approx(plain["f0_median_hz"] * ratio, rel=1e-4)
