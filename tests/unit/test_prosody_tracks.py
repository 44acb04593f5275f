"""Praat's tracks of sounds whose pitch, level and noise are known, and of what is no voice."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from subtext import strict_json
from subtext.cli.main import app
from subtext.errors import DataError
from subtext.prosody.audio import Sound
from subtext.prosody.features import record_from_tracks
from subtext.prosody.frames import Tracks
from subtext.prosody.measure import audio_extractor, measure_clip
from subtext.prosody.schema import SCHEMA, record_problems
from subtext.prosody.tracks import measure_tracks

RATE_HZ = 16_000
STEP_S = 0.01


def times(duration_s: float) -> np.ndarray:
    return np.arange(round(duration_s * RATE_HZ)) / RATE_HZ


def vowel(f0_hz: np.ndarray | float, duration_s: float = 1.0) -> np.ndarray:
    """Harmonics up to 4 kHz, 12 dB an octave below the fundamental, peak about 0.3."""
    f0 = np.broadcast_to(np.asarray(f0_hz, dtype=np.float64), times(duration_s).shape)
    phase = 2 * np.pi * np.cumsum(f0) / RATE_HZ
    parts = [np.where(k * f0 < 4000, np.sin(k * phase) / k**2, 0.0) for k in range(1, 41)]
    return 0.25 * np.sum(parts, axis=0)


def noise(duration_s: float, rms: float, seed: int = 0) -> np.ndarray:
    return rms * np.random.default_rng(seed).normal(size=times(duration_s).size)


def line() -> np.ndarray:
    """1.8 s: a rise, a pause, a fall, a little noise over all."""
    rise, fall = np.geomspace(150, 220, 9600), np.geomspace(240, 120, 12800)
    parts = [vowel(rise, 0.6), np.zeros(6400), vowel(fall, 0.8)]
    return np.concatenate(parts) + noise(1.8, 1e-3)


def sound(samples: np.ndarray) -> Sound:
    return Sound(samples, RATE_HZ, 0.0)


def measured(samples: np.ndarray) -> Tracks:
    return measure_tracks(sound(samples))


def f0_at(tracks: Tracks) -> tuple[np.ndarray, np.ndarray]:
    """Times and F0 of the voiced frames."""
    f0_hz, start_s = np.asarray(tracks.f0_hz), np.asarray(tracks.start_s)
    voiced = ~np.isnan(f0_hz)
    return (start_s[0] + STEP_S * np.arange(f0_hz.size))[voiced], f0_hz[voiced]


@pytest.mark.parametrize("f0_hz", [70.0, 100.0, 150.0, 220.0, 330.0, 500.0])
def test_a_steady_vowel_has_its_pitch_within_1_percent(f0_hz: float) -> None:
    found = f0_at(measured(vowel(f0_hz)))[1]
    assert found.size > 90
    np.testing.assert_allclose(found, f0_hz, rtol=0.01)


@pytest.mark.parametrize("ends_hz", [(110.0, 220.0), (300.0, 150.0)], ids=["rise", "fall"])
def test_a_sweep_is_followed_within_1_percent(ends_hz: tuple[float, float]) -> None:
    given_hz = np.geomspace(*ends_hz, times(2.0).size)
    at_s, found = f0_at(measured(vowel(given_hz, 2.0)))
    assert found.size > 190
    np.testing.assert_allclose(found, np.interp(at_s, times(2.0), given_hz), rtol=0.01)


def test_the_slope_of_a_sweep_is_its_octave_over_its_seconds() -> None:
    record = record_from_tracks(measured(vowel(np.geomspace(110, 220, 32000), 2.0)))
    assert record["f0_slope_st_per_s"] == pytest.approx(6.0, abs=0.05)
    assert record["f0_final_move_st"] == pytest.approx(3.0, abs=0.1)


def test_the_second_pass_takes_its_range_from_the_quartiles_of_the_first() -> None:
    import parselmouth

    samples = line()
    tracks = measured(samples)
    praat = parselmouth.Sound(samples, sampling_frequency=RATE_HZ)
    first = praat.to_pitch_ac(time_step=STEP_S, pitch_floor=60, pitch_ceiling=600)
    first_hz = first.selected_array["frequency"]
    low_hz, high_hz = np.percentile(first_hz[first_hz > 0], [25, 75])
    assert tracks.pitch_floor_hz == pytest.approx(0.75 * low_hz, abs=0.051)
    assert tracks.pitch_ceiling_hz == pytest.approx(2.5 * high_hz, abs=0.051)
    second = praat.to_pitch_ac(
        time_step=STEP_S, pitch_floor=tracks.pitch_floor_hz, pitch_ceiling=tracks.pitch_ceiling_hz
    ).selected_array["frequency"]
    np.testing.assert_array_equal(tracks.f0_hz, np.where(second > 0, second, np.nan))


def test_a_rise_of_two_octaves_is_followed_to_its_top() -> None:
    """1.5 times the upper quartile would be 270 Hz, and the rise ends at 360."""
    f0_hz = np.concatenate([np.full(RATE_HZ, 90.0), np.geomspace(90, 360, RATE_HZ)])
    phase = 2 * np.pi * np.cumsum(f0_hz) / RATE_HZ
    tracks = measured(sum(0.1 * np.sin(k * phase) / k for k in range(1, 9)))
    times_s, found_hz = f0_at(tracks)
    expected_hz = f0_hz[np.clip((times_s * RATE_HZ).astype(int), 0, f0_hz.size - 1)]
    assert np.abs(12 * np.log2(found_hz / expected_hz)).max() < 0.5
    assert found_hz.max() > 340


@pytest.mark.parametrize(
    ("f0_hz", "floor_hz", "ceiling_hz"),
    [(70.0, 60.0, 175.0), (200.0, 150.0, 500.0), (550.0, 412.5, 700.0)],
    ids=["floor of 60", "three quarters and two and a half", "ceiling of 700"],
)
def test_the_range_keeps_its_limits(f0_hz: float, floor_hz: float, ceiling_hz: float) -> None:
    tracks = measured(vowel(f0_hz))
    assert tracks.pitch_floor_hz == pytest.approx(floor_hz, rel=0.005)
    assert tracks.pitch_ceiling_hz == pytest.approx(ceiling_hz, rel=0.005)


@pytest.mark.parametrize(
    ("add", "scale"),
    [(np.zeros(28800), 1.0), (np.full(28800, 0.1), 1.0), (np.eye(1, 28800, 12000)[0], 0.4)],
    ids=["as it is", "with an offset", "quiet, with a click in the pause"],
)
def test_harmonicity_at_voiced_frames_is_praats_to_the_bit(add: np.ndarray, scale: float) -> None:
    import parselmouth

    samples = scale * line() + add
    tracks = measured(samples)
    whole = parselmouth.Sound(samples, sampling_frequency=RATE_HZ).to_harmonicity_cc(
        time_step=STEP_S, minimum_pitch=75, silence_threshold=0.1, periods_per_window=1.0
    )
    index = np.rint((f0_at(tracks)[0] - whole.x1) / STEP_S).astype(int)
    hnr_db = np.asarray(tracks.hnr_db)
    assert np.asarray(tracks.start_s)[2] == whole.x1
    expected = np.where(whole.values[0] == -200, np.nan, whole.values[0])
    np.testing.assert_array_equal(hnr_db[index], expected[index])
    assert np.isnan(np.delete(hnr_db, index)).all()


@pytest.mark.parametrize("ratio_db", [10.0, 20.0])
def test_hnr_is_the_ratio_of_voice_to_noise(ratio_db: float) -> None:
    voice = vowel(200.0, 2.0)
    mixed = voice + noise(2.0, float(np.std(voice)) * 10 ** (-ratio_db / 20))
    assert record_from_tracks(measured(mixed))["hnr_mean_db"] == pytest.approx(ratio_db, abs=1.0)


def test_a_full_scale_sine_has_91_db() -> None:
    intensity_db = np.asarray(measured(np.sin(2 * np.pi * 200 * times(1.0))).intensity_db)
    np.testing.assert_allclose(intensity_db, 91.0, atol=0.05)


def test_jitter_is_the_mean_difference_of_periods_over_their_mean() -> None:
    periods = 80 + np.random.default_rng(1).integers(-2, 3, 200)
    pulses = np.zeros(periods.sum() + 400)
    pulses[np.cumsum(periods)] = 1.0
    shape = np.exp(-np.arange(60) / 10) * np.sin(2 * np.pi * np.arange(60) / 20)
    record = record_from_tracks(measured(0.5 * np.convolve(pulses, shape)))
    expected = np.abs(np.diff(periods)).mean() / periods.mean()
    assert record["jitter_local"] == pytest.approx(expected, rel=0.05)


def test_a_steady_vowel_has_hardly_any_jitter_and_shimmer() -> None:
    record = record_from_tracks(measured(vowel(200.0)))
    assert record["jitter_local"] < 0.001
    assert record["shimmer_local"] < 0.005


def test_unvoiced_is_nan_never_0() -> None:
    f0_hz = np.asarray(measured(line()).f0_hz)
    assert np.isnan(f0_hz).any()
    assert (f0_hz[~np.isnan(f0_hz)] > 60).all()


@pytest.mark.parametrize(
    "samples",
    [np.zeros(16000), np.full(16000, 0.3), noise(1.0, 0.1)],
    ids=["digital silence", "a constant", "white noise"],
)
def test_what_is_no_voice_has_a_record_without_pitch(samples: np.ndarray) -> None:
    record = record_from_tracks(measured(samples), "clip", "not one word of it")
    assert record["quality"] in (["no_voice"], ["little_voice"])
    if record["quality"] == ["no_voice"]:
        names = ("f0_median_hz", "f0_sd_st", "hnr_mean_db", "jitter_local", "shimmer_local")
        assert [record[name] for name in names] == [None] * 5
    assert not list(record_problems("clip", record))


@pytest.mark.parametrize("duration_s", [0.0, 1 / RATE_HZ, 0.02, 0.0999])
def test_a_sound_too_short_for_praat_is_refused(duration_s: float) -> None:
    with pytest.raises(DataError) as caught:
        measure_tracks(sound(vowel(200.0, duration_s)), "clip 1_60")
    (problem,) = caught.value.problems
    assert (problem.where, problem.field) == ("clip 1_60", "duration_s")
    assert "at least 0.1 s" in problem.problem


def test_the_shortest_sound_is_measured() -> None:
    record = record_from_tracks(measured(vowel(200.0, 0.1)))
    assert record["f0_median_hz"] == pytest.approx(200.0, rel=0.01)
    assert record["quality"] == ["little_voice"]


def test_ten_db_more_change_nothing_but_the_level() -> None:
    soft, loud = (record_from_tracks(measured(gain * line())) for gain in (0.3, 0.3 * 10**0.5))
    assert soft.keys() == loud.keys()
    for name in soft:
        assert loud[name] == pytest.approx(soft[name], abs=2e-4), name


SHAPES = st.sampled_from(["silence", "noise", "vowel", "click", "square"])


def _shape(kind: str, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    level = 10 ** rng.uniform(-4, 0)
    if kind == "vowel":
        return level * vowel(rng.uniform(50, 800), n / RATE_HZ)
    if kind == "noise":
        return level * rng.uniform(-1, 1, n)
    if kind == "square":
        turns = rng.uniform(40, 4000) * np.arange(n) / RATE_HZ
        return level * np.sign(np.sin(2 * np.pi * turns))
    made = np.zeros(n)
    if kind == "click" and n:
        made[rng.integers(n)] = level
    return made


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SHAPES, st.integers(0, 6000), st.integers(0, 9)), min_size=1, max_size=4))
def test_any_sound_has_a_valid_record_or_is_too_short(parts: list[tuple[str, int, int]]) -> None:
    samples = np.concatenate([_shape(*part) for part in parts])
    try:
        record = record_from_tracks(measured(samples), "clip")
    except DataError as error:
        assert samples.size < 0.1 * RATE_HZ
        assert [problem.field for problem in error.problems] == ["duration_s"]
    else:
        assert not list(record_problems("clip", record))
        strict_json.dumps(record)


@pytest.fixture(scope="module")
def wav(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "1_60.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes((line() * 32767).astype("<i2").tobytes())
    return path


def test_a_file_gives_the_same_bytes_each_time(wav: Path) -> None:
    texts = [strict_json.dumps(measure_clip(wav, "Oh, wonderful.", "1_60")) for _ in range(3)]
    assert texts[0] == texts[1] == texts[2]


def test_a_file_has_the_record_of_its_samples(wav: Path) -> None:
    record = measure_clip(wav, "Oh, wonderful.", "1_60")
    assert record["n_syllables"] == 4
    assert record["pause_count"] == 1
    assert record["pause_longest_s"] == pytest.approx(0.4, abs=0.07)
    assert record["clipped_fraction"] == 0.0
    plain = record_from_tracks(measured(line()), "1_60", "Oh, wonderful.")
    assert record["f0_sd_st"] == pytest.approx(plain["f0_sd_st"], abs=1e-3)


def test_the_extractor_names_schema_and_praat() -> None:
    assert audio_extractor().startswith(f"{SCHEMA} Praat 6.")


def test_the_command_prints_the_record(wav: Path) -> None:
    result = CliRunner().invoke(app, ["prosody", "measure", str(wav), "--text", "Oh, wonderful."])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output) == measure_clip(wav, "Oh, wonderful.", wav.name)


def test_the_command_refuses_a_missing_file_by_name(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["prosody", "measure", str(tmp_path / "gone.wav")])
    assert isinstance(result.exception, DataError)
    assert "gone.wav" in str(result.exception)
