"""Which clips belong to one scene: those that share a line of dialogue.

MUStARD cuts several clips from one scene, so that the line judged in one is context in another; a
minimal pair says the same line twice. Clips that share a line of at least `MIN_WORDS` words, spoken
or in the context, compared without case and punctuation, are connected; a scene is a connected
component. A split that separates a scene lets a model recognise what it was trained on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

MIN_WORDS = 4
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")

Scenarios = Mapping[str, Mapping[str, Any]]


def normalised(line: str) -> str:
    """Return the words of `line` in lower case, without punctuation, one space between them."""
    return " ".join(_WORD.findall(line.replace("’", "'").casefold()))


def shared_lines(scenarios: Scenarios) -> dict[str, list[str]]:
    """Return each normalised line of at least `MIN_WORDS` words that several clips hold, and their
    ids, in the order of `scenarios`."""
    holders: dict[str, list[str]] = defaultdict(list)
    for clip_id, clip in scenarios.items():
        for line in dict.fromkeys(_lines(clip)):
            holders[line].append(clip_id)
    return {line: ids for line, ids in holders.items() if len(ids) > 1}


def scene_pairs(scenarios: Scenarios) -> set[tuple[str, str]]:
    """Return every two clips that share a line, the smaller id first."""
    return {
        pair for ids in shared_lines(scenarios).values() for pair in combinations(sorted(ids), 2)
    }


def scene_of(scenarios: Scenarios) -> dict[str, str]:
    """Return each clip's scene, named by the smallest clip id in it."""
    parent = {clip_id: clip_id for clip_id in scenarios}

    def root(clip_id: str) -> str:
        while parent[clip_id] != clip_id:
            parent[clip_id] = parent[parent[clip_id]]
            clip_id = parent[clip_id]
        return clip_id

    for one, other in scene_pairs(scenarios):
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    return {clip_id: root(clip_id) for clip_id in scenarios}


def _lines(clip: Mapping[str, Any]) -> Iterator[str]:
    for line in (*clip["context"], clip["utterance"]):
        text = normalised(line)
        if len(text.split()) >= MIN_WORDS:
            yield text
