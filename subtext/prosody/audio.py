"""Sound files to samples: mono, 16 kHz, float64, from any container that people have.

FFmpeg's libraries decode (through PyAV): wav, flac, ogg and opus, mp3, m4a, and the sound of mp4,
mkv and webm video. The first audio stream is taken, channels are averaged with equal weight, the
result is resampled by libswresample.

What can't be measured is refused with the reason: see `decode`. Two measures are taken before
mixing and resampling, which would hide them:

- `clipped_fraction`: share of the samples of all channels that stand at full scale (the highest
  value of 16 bits, or of 8 bits in an 8-bit file) in runs of at least 3. Above 0.5 a file is
  refused, below it is a matter of quality flags.
- Truncation: decoding fails, or less arrives than the file promises: in bytes for wav, mkv and
  webm, by the mark of the last page for Ogg (`subtext.prosody.torn`), elsewhere the stated duration
  by more than 0.25 s, which encoder delay and edit lists explain. A format that states nothing
  can't show that it was cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from subtext.errors import DataError, Problem, reason_of
from subtext.figures import percent
from subtext.prosody.frames import Floats, Mask
from subtext.prosody.sound_files import AUDIO_SUFFIXES
from subtext.prosody.torn import begins_like_sound, has_stated_length, torn

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.container import InputContainer

RATE_HZ = 16_000
MIN_S = 0.2
MAX_S = 601.0
MAX_BYTES = 2 * 2**30

# Playlists, of which a text can be one, make FFmpeg open other files and addresses.
_FORMATS = "wav,w64,aiff,flac,ogg,mp3,aac,mov,matroska,avi,mpegts"
_RATES_HZ = (4_000, 384_000)
_SILENT_PEAK = 1e-4  # -80 dB of full scale, three steps of 16 bits
_LOUDEST_PEAK = 4.0  # +12 dB: lossy codecs overshoot by less
_MAX_CLIPPED = 0.5
_CLIPPED_RUN = 3
_SLACK_S = 0.25
_NO_SOUND = "is no sound or video file that can be read"
_OTHER_KIND = f"Give a file of one of these kinds: {', '.join(AUDIO_SUFFIXES)}."
_AGAIN = "Copy, download or export it again."
_INTEGER_SCALE = {"u1": 128.0, "i2": 2.0**15, "i4": 2.0**31, "i8": 2.0**63}


@dataclass(frozen=True, eq=False)
class Sound:
    """`samples` [n] float64, mono, -1 to 1; `rate_hz`; `clipped_fraction`, 0 to 0.5."""

    samples: Floats
    rate_hz: int
    clipped_fraction: float

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return self.samples.size / self.rate_hz


def decode(path: Path) -> Sound:
    """Return the first audio stream of a file as mono at `RATE_HZ`.

    Raises DataError for what `check_file` refuses and for a file without sound, damaged or
    truncated, shorter than 0.2 s, longer than 10 minutes, silent (peak below -80 dB of full scale),
    mostly clipped, at a sampling rate outside 4 to 384 kHz, or whose samples are not numbers or
    stand more than 12 dB above full scale.
    """
    import av

    check_file(path)
    stage, remedy = _NO_SOUND, _OTHER_KIND
    if begins_like_sound(path):
        stage, remedy = "is truncated or damaged", _AGAIN
    try:
        with av.open(
            f"file:{path}", options={"format_whitelist": _FORMATS}, metadata_errors="ignore"
        ) as container:
            stage, remedy = "is damaged or truncated: decoding fails", _AGAIN
            mixed = _decoded(path, container)
    except (av.FFmpegError, ValueError, EOFError) as error:
        # FFmpeg's own text would add its number and the function that failed.
        said = error.strerror if isinstance(error, av.FFmpegError) else reason_of(error)
        _refuse(path, "file", str(path), f"{stage} ({said})", remedy, error)
    return _sound(path, mixed)


def check_file(path: Path) -> None:
    """Raise DataError unless `path` is a regular file that can be read, of 1 byte to 2 GiB.

    To be asked before anything reads the file: reading a pipe or a device may never end.
    """
    try:
        if path.is_dir():
            _refuse(path, "file", str(path), "is a folder", "Name the sound file inside it.")
        if path.exists() and not path.is_file():
            _refuse(path, "file", str(path), "is no regular file", "Name a sound file.")
        if (size := path.stat().st_size) > MAX_BYTES:
            _refuse(path, "size", size, "is larger than 2 GiB", "Cut the line out.")
        with path.open("rb") as stream:
            first = stream.read(1)
    except (OSError, ValueError) as error:
        said = f"can't be read: {reason_of(error)}"
        _refuse(path, "file", str(path), said, "Check path and rights.", error)
    if not first:
        _refuse(path, "file", str(path), "is empty", _AGAIN)


@dataclass
class _Mixed:
    """What decoding gathers: resampled chunks, and full-scale marks [channels, n] at the source."""

    rate_hz: int
    chunks: list[Floats] = field(default_factory=list)
    full_scale: list[Mask] = field(default_factory=list)
    n_samples: int = 0
    peak: float = 0.0

    @property
    def duration_s(self) -> float:
        return self.n_samples / self.rate_hz


def _decoded(path: Path, container: InputContainer) -> _Mixed:
    from av.audio.resampler import AudioResampler

    if not container.streams.audio:
        kinds = ", ".join(stream.type for stream in container.streams) or "nothing"
        _refuse(path, "streams", kinds, "has no sound", "Give a file with an audio stream.")
    stream = container.streams.audio[0]
    if stream.codec_context is None:
        _refuse(path, "codec", "unknown", "can't be decoded", "Export it as FLAC or WAV.")
    stream.codec_context.thread_count = 1  # clips are measured in parallel processes
    if stream.codec_context.name == "flac":
        stream.codec_context.options = {"err_detect": "crccheck+explode"}
    mixed = _Mixed(_checked_rate(path, stream.codec_context.sample_rate))
    promised_s = _promised_s(path, container, stream)
    _check_length(path, promised_s or MIN_S)

    resampler = AudioResampler(format="dblp", layout="mono", rate=RATE_HZ)
    last_s = 0.0
    for packet in container.demux():
        if packet.pts is not None and packet.time_base is not None:
            last_s = max(last_s, float((packet.pts + (packet.duration or 0)) * packet.time_base))
        if packet.stream_index != stream.index:
            continue
        for frame in stream.decode(packet):
            if not mixed.n_samples:
                mixed.rate_hz = _checked_rate(path, frame.sample_rate)
            if not frame.samples:
                continue
            mono = _mono(path, frame, mixed)
            mixed.chunks += [f.to_ndarray()[0] for f in resampler.resample(_frame(mono, mixed))]
            mixed.n_samples += mono.size
            _check_upper(path, mixed.duration_s)
    if mixed.n_samples:
        mixed.chunks += [frame.to_ndarray()[0] for frame in resampler.resample(None)]
    # Without a duration of its own, the stream may end before the video does.
    arrived_s = mixed.duration_s if stream.duration else max(mixed.duration_s, last_s)
    if promised_s and arrived_s < promised_s - _SLACK_S:
        found = f"{arrived_s:.2f} s of {promised_s:.2f} s"
        _refuse(path, "duration", found, "is truncated", _AGAIN)
    if reason := torn(path, container.format.name):
        _refuse(path, "file", str(path), f"is truncated: {reason}", _AGAIN)
    return mixed


def _promised_s(path: Path, container: InputContainer, stream: AudioStream) -> float | None:
    if not has_stated_length(path, container.format.name):
        return None
    stated = []
    if stream.duration and stream.time_base:
        stated.append(float(stream.duration * stream.time_base))
    if container.duration:
        stated.append(container.duration / 1e6)
    return min(stated, default=None)


def _mono(path: Path, frame: AudioFrame, mixed: _Mixed) -> Floats:
    """The frame's channels averaged, [n]; notes full scale and peak in `mixed`."""
    if frame.sample_rate != mixed.rate_hz:
        found = f"{mixed.rate_hz} Hz, then {frame.sample_rate} Hz"
        _refuse(path, "rate", found, "changes inside the file", "Export it at one rate.")
    raw = frame.to_ndarray()
    n_channels = frame.layout.nb_channels
    if mixed.full_scale and n_channels != mixed.full_scale[0].shape[0]:
        found = f"{mixed.full_scale[0].shape[0]}, then {n_channels}"
        _refuse(path, "channels", found, "change inside the file", "Export it as mono.")
    channels = raw if frame.format.is_planar else raw.reshape(-1, n_channels).T
    kind = channels.dtype.str[1:]
    scaled = channels.astype(np.float64)
    if kind == "u1":
        scaled -= _INTEGER_SCALE["u1"]
    scaled /= _INTEGER_SCALE.get(kind, 1.0)
    if not np.isfinite(scaled).all():
        channel, index = np.argwhere(~np.isfinite(scaled))[0]
        at_s = mixed.duration_s + index / mixed.rate_hz
        _refuse(
            path, f"sample at {at_s:.3f} s", float(scaled[channel, index]), "is not a number",
            "Export the sound again, as integers.",
        )  # fmt: skip
    levels = np.abs(scaled)
    mixed.peak = max(mixed.peak, float(levels.max(initial=0.0)))
    if mixed.peak > _LOUDEST_PEAK:
        _refuse(
            path, "peak", mixed.peak, f"stands above {_LOUDEST_PEAK}, where full scale is 1",
            "Export the sound again, as integers.",
        )  # fmt: skip
    mixed.full_scale.append(levels >= (1 - 1 / 128 if kind == "u1" else 1 - 1 / 32768))
    average: Floats = scaled.mean(axis=0)
    return average


def _frame(mono: Floats, mixed: _Mixed) -> AudioFrame:
    from av.audio.frame import AudioFrame

    frame = AudioFrame.from_ndarray(np.ascontiguousarray(mono[None]), format="dblp", layout="mono")
    frame.sample_rate = mixed.rate_hz
    frame.pts = mixed.n_samples
    return frame


def _sound(path: Path, mixed: _Mixed) -> Sound:
    if not mixed.n_samples:
        _refuse(path, "duration_s", 0.0, "holds no samples", _AGAIN)
    _check_length(path, mixed.duration_s)
    samples = np.clip(np.concatenate(mixed.chunks), -1.0, 1.0)
    peak = float(np.abs(samples).max(initial=0.0))
    if peak < _SILENT_PEAK:
        _refuse(
            path, "peak", peak, f"is silent: no sample reaches {_SILENT_PEAK:g} of full scale",
            "Check the microphone or the export; opposite channels cancel in the average.",
        )  # fmt: skip
    clipped = clipped_fraction(np.concatenate(mixed.full_scale, axis=1))
    if clipped > _MAX_CLIPPED:
        _refuse(
            path, "clipped_fraction", round(clipped, 3),
            f"is clipped: more than {percent(_MAX_CLIPPED)} of the samples stand at full scale",
            "Record it again at a lower level; clipping can't be undone.",
        )  # fmt: skip
    return Sound(samples, RATE_HZ, clipped)


def clipped_fraction(full_scale: Mask) -> float:
    """Share of the samples that lie in a run of >= 3 marks, in `full_scale` [channels, n]."""
    if not full_scale.any():
        return 0.0
    marks = np.pad(full_scale, ((0, 0), (1, 1))).astype(np.int8)
    edges = np.flatnonzero(np.diff(marks.ravel()))
    runs = edges[1::2] - edges[::2]
    return float(runs[runs >= _CLIPPED_RUN].sum() / full_scale.size)


def _checked_rate(path: Path, rate_hz: int) -> int:
    low, high = _RATES_HZ
    # FFmpeg takes what is named .flac for one, whatever it holds.
    if not rate_hz and not begins_like_sound(path):
        _refuse(path, "file", str(path), _NO_SOUND, _OTHER_KIND)
    if not rate_hz:
        _refuse(path, "rate_hz", rate_hz, "is damaged: no sampling rate is stated", _AGAIN)
    if not low <= rate_hz <= high:
        _refuse(
            path, "rate_hz", rate_hz, f"is outside {low} to {high} Hz",
            "Export the sound at 16000 Hz or more.",
        )  # fmt: skip
    return rate_hz


def _check_length(path: Path, duration_s: float) -> None:
    _check_upper(path, duration_s)
    if duration_s < MIN_S:
        _refuse(
            path, "duration_s", round(duration_s, 3),
            f"is too short: pitch and pauses need {MIN_S} s", "Give the whole line.",
        )  # fmt: skip


def _check_upper(path: Path, duration_s: float) -> None:
    if duration_s > MAX_S:
        _refuse(
            path, "duration_s", round(duration_s, 1),
            "is too long for one line of dialogue: more than 10 minutes", "Cut the line out.",
        )  # fmt: skip


def _refuse(
    path: Path, name: str, value: Any, problem: str, remedy: str, cause: Exception | None = None
) -> NoReturn:
    raise DataError("Audio refused", [Problem(path.name, name, value, problem, remedy)]) from cause
