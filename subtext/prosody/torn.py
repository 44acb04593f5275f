"""Was a sound file cut? What FFmpeg's demuxers don't say, read from the bytes.

A wav states the size of its samples, Matroska and WebM that of their segment (RFC 8794 and 9559),
an Ogg stream marks its last page (RFC 3533), an mp3 tells its length
only in a Xing, Info or VBRI frame; without one, FFmpeg guesses the length from the first bitrate.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

_STREAMED = (0, 0xFFFFFFFF)  # sizes that a writer leaves which could not seek back
_ID3_HEADER = 10
_MP3_HEADER = 4096
_OGG_TAIL = 65_307 + 27  # the longest page, and one header
_OGG_END_OF_STREAM = 4
_EBML = b"\x1a\x45\xdf\xa3"
_SEGMENT = b"\x18\x53\x80\x67"


def begins_like_sound(path: Path) -> bool:
    """True if the first bytes are those of wav, flac, Ogg, Matroska, WebM, mp4 or m4a."""
    with path.open("rb") as stream:
        head = stream.read(8)
    return head[:4] in (b"RIFF", b"fLaC", b"OggS", _EBML) or head[4:] == b"ftyp"


def has_stated_length(path: Path, format_name: str) -> bool:
    """True if the duration that FFmpeg reports for the file is written in it."""
    if format_name == "mp3":
        with path.open("rb") as stream:
            head = stream.read(_ID3_HEADER)
            if head[:3] == b"ID3":
                high, *rest = head[6:10]
                size = high
                for byte in rest:
                    size = size << 7 | byte
                stream.seek(_ID3_HEADER + size)
            else:
                stream.seek(0)
            first = stream.read(_MP3_HEADER)
        return any(mark in first for mark in (b"Xing", b"Info", b"VBRI"))
    return format_name == "flac" or any(name in format_name for name in ("mp4", "matroska"))


def torn(path: Path, format_name: str) -> str | None:
    """Return why a wav, Matroska or Ogg file is known to be cut, or None."""
    if format_name == "wav":
        return _torn_wav(path)
    if format_name == "ogg":
        return _torn_ogg(path)
    if "matroska" in format_name:
        return _torn_matroska(path)
    return None


def _torn_wav(path: Path) -> str | None:
    size = path.stat().st_size
    with path.open("rb") as stream:
        if stream.read(4) != b"RIFF":
            return None  # RF64 and the rest keep their sizes elsewhere
        stream.seek(12)
        while len(header := stream.read(8)) == 8:
            name, stated = struct.unpack("<4sI", header)
            there = size - stream.tell()
            if name == b"data":
                if stated in _STREAMED or stated <= there:
                    return None
                return f"{there} bytes of samples of {stated}"
            stream.seek(stated + stated % 2, os.SEEK_CUR)
    return None


def _torn_ogg(path: Path) -> str | None:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _OGG_TAIL))
        tail = stream.read()
    start = tail.rfind(b"OggS")
    page = tail[start:]
    if start < 0 or len(page) < 27 or len(page) < 27 + page[26] + sum(page[27 : 27 + page[26]]):
        return "its last page is incomplete"
    return None if page[5] & _OGG_END_OF_STREAM else "its last page is not marked as the last"


def _torn_matroska(path: Path) -> str | None:
    with path.open("rb") as stream:
        stream.seek(len(_EBML))
        stream.seek(_ebml_size(stream) or 0, os.SEEK_CUR)
        if stream.read(len(_SEGMENT)) != _SEGMENT:
            return None
        stated = _ebml_size(stream)
        there = path.stat().st_size - stream.tell()
    return None if stated is None or stated <= there else f"{there} bytes of {stated}"


def _ebml_size(stream: BinaryIO) -> int | None:
    """The size at the stream's position; None if it is unknown, as in a live recording."""
    first = int.from_bytes(stream.read(1))
    length = 9 - first.bit_length()
    bits = 7 * length
    size = (first << 8 * (length - 1) | int.from_bytes(stream.read(length - 1))) & (1 << bits) - 1
    return None if size == (1 << bits) - 1 or length > 8 else size
