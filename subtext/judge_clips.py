"""Clips as users give them to a judge: what is refused, and prosody measured from their sound."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from subtext.data.json_files import is_unicode
from subtext.errors import DataError, Problem
from subtext.prosody.measure import measure_clip
from subtext.prosody.schema import record_problems


def measured_clips(
    clips: Sequence[Mapping[str, Any]], item: str = "clip"
) -> list[Mapping[str, Any]]:
    """Return `clips` with `prosody` measured from the sound of those that name `audio`.

    `item` is what one is called in problems. Raises DataError with everything wrong with any clip.
    """
    problems = [
        problem
        for index, clip in enumerate(clips)
        for problem in clip_problems(f"{item} {index}", clip)
    ]
    if problems:
        raise DataError("Clips refused", problems)
    ready: list[Mapping[str, Any]] = []
    for index, clip in enumerate(clips):
        try:
            ready.append(_measured(clip))
        except DataError as error:
            where = f"{item} {index}, audio"
            problems += [replace(problem, where=where) for problem in error.problems]
    if problems:
        raise DataError("Clips refused", problems)
    return ready


def clip_problems(where: str, clip: object) -> list[Problem]:
    """Return everything that keeps `clip` from being judged; `where` names it in the problems.

    Its sound is not opened here.
    """
    if not isinstance(clip, Mapping):
        remedy = "Give a mapping with utterance, and with context, speaker, prosody where known."
        return [Problem(where, "clip", clip, "is no clip", remedy)]
    text = clip.get("utterance")
    problems = []
    if not _is_text(text) or not text.strip():
        problems.append(Problem(where, "utterance", text, "is no text", "Give the line to judge."))
    for key in ("speaker", "clip_id", "audio"):
        if clip.get(key) is not None and not _is_text(clip[key]):
            remedy = "Give a text, or leave it out."
            problems.append(Problem(where, key, clip[key], "is no text", remedy))
    return [*problems, *_context_problems(where, clip), *_prosody_problems(where, clip)]


def _measured(clip: Mapping[str, Any]) -> Mapping[str, Any]:
    if clip.get("audio") is None:
        return clip
    record = measure_clip(Path(clip["audio"]), clip["utterance"])
    return {**{key: value for key, value in clip.items() if key != "audio"}, "prosody": record}


def _context_problems(where: str, clip: Mapping[str, Any]) -> Iterator[Problem]:
    lines, speakers = clip.get("context"), clip.get("context_speakers")
    given = {"context": lines, "context_speakers": speakers}
    bad = [key for key, value in given.items() if not _is_list_of_text(value)]
    for key in bad:
        yield Problem(where, key, given[key], "is no list of text", "Give one text a line.")
    n_lines = 0 if bad else len(lines or ())
    if not bad and speakers and len(speakers) != n_lines:
        yield Problem(
            where, "context_speakers", speakers, f"does not fit {n_lines} lines of context",
            "Give one speaker a line, or none at all.",
        )  # fmt: skip


def _prosody_problems(where: str, clip: Mapping[str, Any]) -> Iterator[Problem]:
    prosody = clip.get("prosody")
    if prosody is not None and clip.get("audio") is not None:
        remedy = "Give the record or the sound, not both."
        yield Problem(where, "audio", clip["audio"], "is given beside a prosody record", remedy)
    if isinstance(prosody, Mapping):
        yield from record_problems(f"{where}, prosody", prosody)
        for name, value in prosody.items():
            numbers = value if isinstance(value, list) else [value]
            if any(isinstance(item, float) and not math.isfinite(item) for item in numbers):
                yield Problem(f"{where}, prosody", name, value, "is not finite", "Give null.")
    elif prosody is not None:
        remedy = "Give a record of prosody.json, or null."
        yield Problem(where, "prosody", prosody, "is no record", remedy)


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and is_unicode(value)


def _is_list_of_text(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple) and all(map(_is_text, value)))
