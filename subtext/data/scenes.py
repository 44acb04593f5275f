"""Which clips belong to one scene: those that share a line of dialogue.

MUStARD cuts several clips from one scene, so that the line judged in one is context in another; a
minimal pair says the same line twice. Clips are connected that share a line of at least `MIN_WORDS`
words, spoken or in the context, and clips whose whole text, context and line, is the same, however
short. Lines are compared without case, punctuation and Unicode's different spellings of one letter.
A scene is a connected component. A split that separates a scene lets a model recognise what it was
trained on.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any

from subtext.data.clips import Scenarios

MIN_WORDS = 4
# Scripts that write no spaces between words: each of their letters counts as one.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)


def normalised(line: str) -> str:
    """Return the words of `line` in lower case, without punctuation, one space between them."""
    text = unicodedata.normalize("NFKC", line.replace("’", "'")).casefold()
    kept = "".join(
        # Letters, numbers and the marks that many scripts put on them.
        char if char == "'" or unicodedata.category(char)[0] in "LNM" else " "
        for char in text
    )
    return " ".join(filter(None, (word.strip("'") for word in kept.split())))


def shared_lines(scenarios: Scenarios) -> dict[str, list[str]]:
    """Return what several clips share, and their ids, in the order of `scenarios`: normalised lines
    of at least `MIN_WORDS` words, and whole texts of shorter ones, joined by " / "."""
    holders: dict[str, list[str]] = defaultdict(list)
    for clip_id, clip in scenarios.items():
        for line in dict.fromkeys(_lines(clip)):
            holders[line].append(clip_id)
    return {line: ids for line, ids in holders.items() if len(ids) > 1}


def pairs_across(scenarios: Scenarios, side: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each two clips that share a line, of which one alone is in `side`, and that line.

    The clip in `side` comes first; sorted, and of several shared lines the first in the alphabet.
    """
    inside = set(side)
    lines_of: dict[str, list[str]] = defaultdict(list)
    shared = shared_lines(scenarios)
    for line in sorted(shared):
        for clip_id in inside.intersection(shared[line]):
            lines_of[clip_id].append(line)
    for clip_id in sorted(lines_of):
        partners: dict[str, str] = {}
        for line in lines_of[clip_id]:
            for other in shared[line]:
                if other not in inside:
                    partners.setdefault(other, line)
        for other in sorted(partners):
            yield clip_id, other, partners[other]


def scene_of(scenarios: Scenarios) -> dict[str, str]:
    """Return each clip's scene, named by the smallest clip id in it."""
    parent = {clip_id: clip_id for clip_id in scenarios}

    def root(clip_id: str) -> str:
        while parent[clip_id] != clip_id:
            parent[clip_id] = parent[parent[clip_id]]
            clip_id = parent[clip_id]
        return clip_id

    for ids in shared_lines(scenarios).values():
        for one, other in pairwise(ids):
            low, high = sorted((root(one), root(other)))
            parent[high] = low
    return {clip_id: root(clip_id) for clip_id in scenarios}


def _lines(clip: Mapping[str, Any]) -> Iterator[str]:
    lines = [normalised(line) or line.strip() for line in (*clip["context"], clip["utterance"])]
    long = [line for line in lines if _n_words(line) >= MIN_WORDS]
    # Where a line is long enough, the same whole text shares it anyway.
    yield from long or [" / ".join(lines)]


def _n_words(line: str) -> int:
    return len(line.split()) + len(_UNSPACED.findall(line))
