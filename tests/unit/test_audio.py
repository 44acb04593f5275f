"""Decoding: every format that people have, what is refused and why, and damaged files."""

from __future__ import annotations

import os
import random
import re
import wave
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subtext.errors import DataError, Problem
from subtext.prosody.audio import MAX_BYTES, RATE_HZ, Sound, decode
from subtext.prosody.sound_files import AUDIO_SUFFIXES, find_audio

TONE_HZ = 220.0
LEVEL = 0.3

FORMATS = [
    ("a.wav", "pcm_s16le", "s16", 48_000, "stereo", "the usual recording"),
    ("a.wav", "pcm_s16le", "s16", 16_000, "mono", "needs no resampling"),
    ("a.wav", "pcm_u8", "u8", 8_000, "mono", "8 bits, unsigned, telephone rate"),
    ("a.wav", "pcm_s24le", "s32", 44_100, "stereo", "24 bits"),
    ("a.wav", "pcm_f32le", "flt", 96_000, "mono", "floats, studio rate"),
    ("a.wav", "pcm_f64le", "dbl", 22_050, "mono", "doubles"),
    ("a.wav", "pcm_mulaw", "s16", 8_000, "mono", "telephone"),
    ("a.flac", "flac", "s16", 16_000, "mono", "the demo corpus"),
    ("a.flac", "flac", "s32", 44_100, "5.1", "24 bits, six channels"),
    ("a.ogg", "libopus", "flt", 48_000, "stereo", "opus in Ogg"),
    ("a.ogg", "flac", "s16", 44_100, "mono", "flac in Ogg"),
    ("a.opus", "libopus", "flt", 16_000, "mono", "opus always decodes at 48 kHz"),
    ("a.mp3", "libmp3lame", "fltp", 44_100, "stereo", "planar floats"),
    ("a.mp3", "libmp3lame", "s16p", 8_000, "mono", "MPEG 2.5"),
    ("a.m4a", "aac", "fltp", 44_100, "stereo", "aac in mp4"),
    ("a.mp4", "aac", "fltp", 48_000, "5.1", "surround"),
    ("a.mkv", "ac3", "fltp", 48_000, "5.1", "a DVD's sound"),
    ("a.mkv", "flac", "s16", 48_000, "stereo", "flac in Matroska"),
    ("a.webm", "libopus", "flt", 48_000, "mono", "a browser's recording"),
]


def tone(seconds: float = 1.0, rate_hz: int = 16_000, n_channels: int = 1) -> np.ndarray:
    wave_form = LEVEL * np.sin(2 * np.pi * TONE_HZ * np.arange(int(seconds * rate_hz)) / rate_hz)
    return np.tile(wave_form, (n_channels, 1))


def write(
    path: Path,
    *streams: np.ndarray,
    codec: str = "pcm_s16le",
    sample_format: str | None = None,
    rate_hz: int = 16_000,
    layout: str = "mono",
    picture: bool = False,
) -> Path:
    """A file with one audio stream a given array [channels, n], and a video stream in front."""
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        video = container.add_stream("mpeg4", rate=10) if picture else None
        outputs = [container.add_stream(codec, rate=rate_hz, layout=layout) for _ in streams]
        for output in outputs:
            if sample_format:
                output.codec_context.format = sample_format
        if video:
            video.width = video.height = 32
            for _ in range(10):
                image = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
                container.mux(video.encode(image))
            container.mux(video.encode(None))
        for output, samples in zip(outputs, streams, strict=True):
            frame = av.AudioFrame.from_ndarray(samples, format="dblp", layout=layout)
            frame.sample_rate = rate_hz
            frame.pts = 0
            container.mux(output.encode(frame))
            container.mux(output.encode(None))
    return path


def write_integers(path: Path, values: np.ndarray, n_channels: int = 1) -> Path:
    with wave.open(str(path), "wb") as stream:
        stream.setparams((n_channels, values.dtype.itemsize, 16_000, 0, "NONE", ""))
        stream.writeframes(values.tobytes())
    return path


def refused(path: Path) -> Problem:
    with pytest.raises(DataError) as caught:
        decode(path)
    (problem,) = caught.value.problems
    assert problem.where == path.name
    assert problem.remedy
    return problem


def loudest_hz(sound: Sound) -> float:
    spectrum = np.abs(np.fft.rfft(sound.samples * np.hanning(sound.samples.size)))
    return float(np.argmax(spectrum) * sound.rate_hz / sound.samples.size)


@pytest.mark.parametrize(
    ("name", "codec", "sample_format", "rate_hz", "layout", "reason"),
    FORMATS,
    ids=[f"{name}-{codec}-{rate}-{layout}" for name, codec, _, rate, layout, _ in FORMATS],
)
def test_every_format_gives_the_tone_that_went_in(
    tmp_path: Path, name: str, codec: str, sample_format: str, rate_hz: int, layout: str,
    reason: str,
) -> None:  # fmt: skip
    samples = tone(1.0, rate_hz, av.AudioLayout(layout).nb_channels)
    path = write(
        tmp_path / name, samples, codec=codec, sample_format=sample_format, rate_hz=rate_hz,
        layout=layout,
    )  # fmt: skip
    sound = decode(path)
    assert (sound.rate_hz, sound.samples.dtype) == (RATE_HZ, np.float64), reason
    # Lossy encoders fill their last frame; no player cuts it off where the container can't say.
    assert sound.duration_s == pytest.approx(1.0, abs=0.11), reason
    assert loudest_hz(sound) == pytest.approx(TONE_HZ, abs=1.0), reason
    middle = sound.samples[4000:12_000]
    # AC3 and AAC leave the LFE channel without the tone; LAME scales by 0.95.
    lowest = 0.78 if layout == "5.1" else 0.94
    assert lowest < np.std(middle) * np.sqrt(2) / LEVEL < 1.05, reason
    assert sound.clipped_fraction == 0.0, reason


def test_16_khz_integers_come_through_exactly(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(-30_000, 30_000, 8000).astype("<i2")
    sound = decode(write_integers(tmp_path / "a.wav", values))
    np.testing.assert_array_equal(sound.samples, values / 32768)


def test_the_same_file_gives_the_same_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp3", tone(1, 44_100), codec="libmp3lame", rate_hz=44_100)
    assert decode(path).samples.tobytes() == decode(path).samples.tobytes()


def test_channels_are_averaged_with_equal_weight(tmp_path: Path) -> None:
    six = np.zeros((6, 16_000))
    six[3] = tone()[0]  # the LFE channel, which a downmix for loudspeakers would drop
    path = write(tmp_path / "a.wav", six, codec="pcm_f32le", layout="5.1")
    np.testing.assert_allclose(decode(path).samples, tone()[0] / 6, atol=1e-7)


def test_resampling_moves_nothing_in_time(tmp_path: Path) -> None:
    samples = np.zeros((1, 44_100))
    samples[0, 22_050] = 0.9
    sound = decode(write(tmp_path / "a.wav", samples, codec="pcm_f32le", rate_hz=44_100))
    assert np.argmax(np.abs(sound.samples)) == 8000
    assert sound.samples.size == 16_000


def test_the_first_sound_of_a_video_is_taken(tmp_path: Path) -> None:
    other = 0.3 * np.sin(2 * np.pi * 700 * np.arange(16_000) / 16_000)[None]
    path = write(tmp_path / "a.mkv", tone(), other, codec="flac", sample_format="s16", picture=True)
    assert loudest_hz(decode(path)) == pytest.approx(TONE_HZ, abs=1.0)


def test_sound_that_ends_before_its_video_is_not_truncated(tmp_path: Path) -> None:
    for name in ("a.mp4", "a.mkv"):
        path = write(tmp_path / name, tone(0.5), codec="aac", picture=True)
        assert decode(path).duration_s == pytest.approx(0.5, abs=0.13)


@pytest.mark.parametrize(
    "name", ["http:x.wav", "concat:a.wav", "a %03d.wav", "-i.wav", "ä 漢字.wav", "a.WAV", "a.bin"]
)
def test_a_name_is_only_a_name(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "plain.wav", tone()).rename(tmp_path / name)
    assert decode(path).samples.size == 16_000


def runs_of(values: dict[int, int], kind: str = "<i2", size: int = 8000) -> np.ndarray:
    """A quiet ramp with `length` samples of full scale at each `start`."""
    samples = (np.arange(size) % 50).astype(kind)
    for start, length in values.items():
        samples[start : start + length] = np.iinfo(kind).max
    return samples


@pytest.mark.parametrize(
    ("values", "n_channels", "expected", "reason"),
    [
        (runs_of({}), 1, 0.0, "nothing at full scale"),
        (runs_of({100: 4, 200: 3}), 1, 7 / 8000, "two runs"),
        (runs_of({100: 2, 200: 1}), 1, 0.0, "peaks that touch full scale are not clipped"),
        (-runs_of({100: 4}) - 1, 1, 4 / 8000, "the lowest value is full scale too"),
        (runs_of({0: 5}), 1, 5 / 8000, "a run at the start"),
        (runs_of({7995: 5}), 1, 5 / 8000, "a run at the end"),
        (runs_of({100: 4}), 2, 0.0, "two samples in each of two channels"),
        (runs_of({100: 8}), 2, 8 / 8000, "clipped before averaging"),
        (runs_of({100: 4}, "u1") + 128 * (runs_of({100: 4}, "u1") < 128).astype("u1"),
         1, 4 / 8000, "8 bits end at 127/128"),
    ],
    ids=range(9),
)  # fmt: skip
def test_clipping_is_counted_in_runs_of_three(
    tmp_path: Path, values: np.ndarray, n_channels: int, expected: float, reason: str
) -> None:
    sound = decode(write_integers(tmp_path / "a.wav", values, n_channels))
    assert sound.clipped_fraction == pytest.approx(expected), reason


def with_value(value: float) -> np.ndarray:
    samples = tone()
    samples[0, 8000] = value
    return samples


def opposite(path: Path) -> Path:
    return write(path, np.concatenate((tone(), -tone())), codec="pcm_f32le", layout="stereo")


def square(path: Path) -> Path:
    return write_integers(path, np.where(tone()[0] > 0, 32767, -32768).astype("<i2"))


def image(path: Path) -> Path:
    with av.open(str(path), "w", format="image2") as container:
        stream = container.add_stream("png", rate=1)
        stream.width = stream.height = 16
        stream.pix_fmt = "rgb24"
        frame = av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24")
        container.mux(stream.encode(frame))
    return path


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def larger_than_any_line(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)  # without a byte on the disk


BAD = [
    ("a.wav", lambda path: None, "No such file", "is not there"),
    ("a.wav", lambda path: path.mkdir(), "is a folder", "a folder with a sound's name"),
    ("a.wav", os.mkfifo, "is no regular file", "a pipe that nobody fills"),
    ("a.wav", lambda path: path.symlink_to("/dev/zero"), "is no regular file", "zeros for ever"),
    ("a.wav", larger_than_any_line, "larger than 2 GiB", "a whole disk"),
    ("a.wav", lambda path: path.touch(), "is empty", "a failed download"),
    ("a.wav", text("no sound at all\n" * 50), "no sound or video file", "a text"),
    ("a.flac", text("no sound at all\n" * 50), "no sound or video file", "a text named .flac"),
    ("a.flac", lambda path: path.write_bytes(random.Random(0).randbytes(3000)),
     "no sound or video file", "random bytes named .flac"),
    ("a.mp3", text("<html>404</html>" * 500), "no sound or video file", "an error page"),
    ("a.wav", text("#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://localhost:9/b.ts\n"),
     "no sound or video file", "a playlist must not be followed"),
    ("a.mp3", text("ffconcat version 1.0\nfile b.wav\n"), "no sound or video file",
     "a list of other files"),
    ("a.png", image, "no sound or video file", "a picture"),
    ("a.wav", image, "no sound or video file", "a picture with a sound's name"),
    ("a.mp4", lambda path: write(path, picture=True), "has no sound", "a silent film"),
    ("a.wav", lambda path: write(path, 0 * tone()), "is silent", "all zeros"),
    ("a.wav", lambda path: write(path, 1e-4 * tone(), codec="pcm_f32le"), "is silent",
     "noise of the converter"),
    ("a.wav", opposite, "is silent", "opposite channels cancel"),
    ("a.wav", square, "is clipped", "nothing but full scale"),
    ("a.wav", lambda path: write(path, tone(0.1)), "too short", "a click"),
    ("a.wav", lambda path: write_integers(path, np.empty(0, "<i2")), "too short|no samples",
     "only a header"),
    ("a.wav", lambda path: write(path, tone(602, 8000), rate_hz=8000), "too long", "an episode"),
    ("a.flac", lambda path: write(path, tone(602, 8000), codec="flac", rate_hz=8000), "too long",
     "a podcast"),
    ("a.wav", lambda path: write(path, tone(1, 2000), rate_hz=2000), "outside 4000", "no speech"),
    ("a.wav", lambda path: write(path, with_value(np.nan), codec="pcm_f32le"), "not a number",
     "NaN"),
    ("a.wav", lambda path: write(path, with_value(np.inf), codec="pcm_f64le"), "not a number",
     "infinity"),
    ("a.wav", lambda path: write(path, with_value(9000.0), codec="pcm_f32le"), "stands above",
     "floats that hold integers"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "make", "problem", "reason"), BAD, ids=[f"{reason}" for *_, reason in BAD]
)
def test_what_cannot_be_measured_is_refused_by_name(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    name: str,
    make: Callable[[Path], object],
    problem: str,
    reason: str,
) -> None:
    path = tmp_path / name
    make(path)
    found = refused(path)
    assert not re.search(r"Errno|\(\)|file:", found.problem), reason
    assert any(part in found.problem for part in problem.split("|")), (reason, found)
    captured = capfd.readouterr()
    assert captured.out + captured.err == "", reason


@pytest.mark.parametrize(
    ("rate_hz", "layout", "problem"),
    [(48_000, "mono", "changes inside"), (44_100, "stereo", "change inside")],
    ids=["rate", "channels"],
)
def test_two_recordings_glued_together_are_refused(
    tmp_path: Path, rate_hz: int, layout: str, problem: str
) -> None:
    one = write(tmp_path / "a.mp2", tone(1, 44_100), codec="mp2", rate_hz=44_100)
    samples = tone(1, rate_hz, av.AudioLayout(layout).nb_channels)
    two = write(tmp_path / "b.mp2", samples, codec="mp2", rate_hz=rate_hz, layout=layout)
    one.write_bytes(one.read_bytes() + two.read_bytes())
    assert problem in refused(one).problem


def test_an_unreadable_name_is_refused() -> None:
    assert "null byte" in refused(Path("a\0.wav")).problem


def test_the_frame_that_is_no_number_is_named(tmp_path: Path) -> None:
    found = refused(write(tmp_path / "a.wav", with_value(np.nan), codec="pcm_f32le"))
    assert found.field == "sample at 0.500 s"


CUT = [
    ("a.wav", "pcm_s16le"), ("a.flac", "flac"), ("a.ogg", "libopus"), ("a.mp3", "libmp3lame"),
    ("a.m4a", "aac"), ("a.mkv", "libopus"), ("a.webm", "libopus"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "codec"), CUT, ids=[name for name, _ in CUT])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
def test_a_torn_file_is_refused(tmp_path: Path, name: str, codec: str, share: float) -> None:
    path = write(tmp_path / name, tone(2, 48_000), codec=codec, rate_hz=48_000)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    found = refused(path)
    assert "truncated" in found.problem or "damaged" in found.problem
    assert not re.search(r"Errno|avcodec|\(\)", found.problem), "FFmpeg's number or function"


def test_a_film_with_its_index_in_front_is_torn_too(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4", tone(1.0), codec="aac", picture=True)
    content = path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")
    path.write_bytes(content[: content.index(b"mdat") + 1500])
    assert "truncated" in refused(path).problem


@pytest.mark.parametrize("name", ["a.wav", "a.ogg", "a.mkv"])
def test_one_byte_too_few_is_seen_where_bytes_are_stated(tmp_path: Path, name: str) -> None:
    codec = "pcm_s16le" if name == "a.wav" else "libopus"
    path = write(tmp_path / name, tone(2, 48_000), codec=codec, rate_hz=48_000)
    path.write_bytes(path.read_bytes()[:-1])
    assert "truncated" in refused(path).problem


def test_a_wav_from_a_pipe_states_no_size_and_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", tone())
    content = bytearray(path.read_bytes())
    at = content.index(b"data") + 4
    content[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    assert decode(path).samples.size == 16_000


@pytest.mark.parametrize("suffix", AUDIO_SUFFIXES)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=3000))
def test_random_bytes_are_refused_under_any_suffix(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    refused(path)


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("valid")
    return {
        name: write(folder / name, tone(0.6, 48_000), codec=codec, rate_hz=48_000).read_bytes()
        for name, codec in CUT
    }


@pytest.mark.parametrize("name", [name for name, _ in CUT])
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_file_gives_a_sound_or_a_reason(
    tmp_path: Path, valid: dict[str, bytes], name: str, data: st.DataObject
) -> None:
    content = bytearray(valid[name])
    # Headers, where damage does the most, are short beside the samples.
    last = data.draw(st.sampled_from([120, len(content) - 1]))
    for index in data.draw(st.lists(st.integers(0, last), max_size=6)):
        content[index] ^= 1 << data.draw(st.integers(0, 7))
    stop = data.draw(st.one_of(st.none(), st.integers(1, len(content))))
    path = tmp_path / name
    path.write_bytes(content[:stop])
    try:
        sound = decode(path)
    except DataError as error:
        assert len(error.problems) == 1
    else:
        assert np.isfinite(sound.samples).all()
        assert np.abs(sound.samples).max() <= 1.0
        assert 0.0 <= sound.clipped_fraction <= 0.5


def test_a_clips_sound_is_found_by_its_id(tmp_path: Path) -> None:
    for name in ("1_60.OPUS", "1_6.wav", "1_60.2.wav"):
        (tmp_path / name).touch()
    assert find_audio(tmp_path, "1_60") == tmp_path / "1_60.OPUS"
    assert find_audio(tmp_path, "1_60.2") == tmp_path / "1_60.2.wav"


@pytest.mark.parametrize(
    ("names", "problem"),
    [([], "no sound file is there"), (["1_60.txt", "1_600.wav"], "no sound file is there"),
     (["1_60.wav", "1_60.mp4"], "2 files")],
    ids=["empty folder", "others", "two"],
)  # fmt: skip
def test_a_clip_without_one_sound_is_refused(
    tmp_path: Path, names: list[str], problem: str
) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=problem):
        find_audio(tmp_path, "1_60")
