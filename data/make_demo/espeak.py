"""Speak one line with espeak-ng and say where its words are: a program for speech.py.

Reads `{"text", "voice", "words_per_minute"}` as JSON from standard input and writes one line of
JSON, `{"rate_hz", "version", "words", "gaps"}`, then the samples (16 bit, native byte order).
`words` are [start, end] of every word and `gaps` of every silence between clauses, in samples.

The program `espeak-ng` does not say when a word begins, its library does. Each line gets a process
of its own, since the library keeps state from one line to the next and the sound would depend on
the order.
"""

from __future__ import annotations

import ctypes
import json
import sys

LIBRARY = "libespeak-ng.so.1"
_SYNCHRONOUS, _PHONEME_EVENTS = 2, 1
_RATE_PARAMETER = 1
_UTF8 = 1
_END_OF_LIST, _WORD, _PHONEME = 0, 1, 7
_PAUSE = "_"


class _Id(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    """`espeak_EVENT` of espeak-ng's speak_lib.h."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Id),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


def speak(text: str, voice: str, words_per_minute: int) -> tuple[dict[str, object], bytes]:
    """Return the header and the samples of one line. Raises OSError without the library and
    ValueError for a voice it does not have."""
    espeak = ctypes.CDLL(LIBRARY)
    espeak.espeak_Info.restype = ctypes.c_char_p
    samples = bytearray()
    events: list[tuple[int, int, str]] = []

    def receive(wav: ctypes.Array[ctypes.c_short], n: int, event: ctypes.Array[_Event]) -> int:
        if wav and n > 0:
            samples.extend(ctypes.string_at(wav, 2 * n))
        i = 0
        while event[i].type != _END_OF_LIST:
            if event[i].type in (_WORD, _PHONEME):
                name = event[i].id.string.decode() if event[i].type == _PHONEME else ""
                events.append((event[i].type, event[i].sample, name))
            i += 1
        return 0

    callback = _Callback(receive)
    rate_hz = espeak.espeak_Initialize(_SYNCHRONOUS, 0, None, _PHONEME_EVENTS)
    espeak.espeak_SetSynthCallback(callback)
    if espeak.espeak_SetVoiceByName(voice.encode()):
        raise ValueError(f"espeak-ng has no voice {voice}")
    espeak.espeak_SetParameter(_RATE_PARAMETER, words_per_minute, 0)
    spoken = text.encode()
    espeak.espeak_Synth(spoken, len(spoken) + 1, 0, 1, 0, _UTF8, None, None)
    espeak.espeak_Synchronize()
    words, gaps = _spans(events, len(samples) // 2)
    version = espeak.espeak_Info(None).decode()
    header = {"rate_hz": rate_hz, "version": version, "words": words, "gaps": gaps}
    return header, bytes(samples)


def _spans(
    events: list[tuple[int, int, str]], n_samples: int
) -> tuple[list[list[int]], list[list[int]]]:
    """[start, end] of every word and of every silence. A word lasts until the next or a silence."""
    words: list[list[int]] = []
    gaps: list[list[int]] = []
    open_gap = open_word = False
    for kind, sample, name in events:
        silent = kind == _PHONEME and name.startswith(_PAUSE)
        if open_word and (silent or kind == _WORD):
            words[-1][1], open_word = sample, False
        if open_gap and not silent:
            gaps[-1][1], open_gap = sample, False
        if kind == _WORD:
            words.append([sample, n_samples])
            open_word = True
        elif silent and not open_gap:
            gaps.append([sample, n_samples])
            open_gap = True
    return [word for word in words if word[1] > word[0]], gaps


def main() -> None:
    request = json.load(sys.stdin)
    header, samples = speak(request["text"], request["voice"], request["words_per_minute"])
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\n" + samples)


if __name__ == "__main__":
    main()
