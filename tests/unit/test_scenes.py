"""Scenes: clips that share a line, or their whole text, are one; nothing else connects."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtext.data.scenes import normalised, pairs_across, scene_of, shared_lines

MUSTARD = Path(__file__).resolve().parents[3] / "shared" / "mustard" / "sarcasm_data.json"


def clip(utterance: str, *context: str) -> dict[str, Any]:
    return {"utterance": utterance, "context": list(context)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("Oh, WELL - that’s it!", "oh well that's it", id="case-and-punctuation"),
        pytest.param("Caf\u00e9", "Cafe\u0301", id="composed-and-decomposed-letters"),
        pytest.param("'quoted'", "quoted", id="quotes-are-no-apostrophes"),
        pytest.param("\uff21\uff22", "ab", id="full-width-letters"),
    ],
)
def test_spellings_of_one_line(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


def test_marks_stay_on_their_letters() -> None:
    hindi = "\u0928\u092e\u0938\u094d\u0924\u0947"
    assert normalised(hindi) == hindi


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        pytest.param(clip("what a great day"), clip("What a great day!"), True, id="four-words"),
        pytest.param(clip("a great day", "x"), clip("A great day!", "y"), False, id="three-words"),
        pytest.param(clip("Oh.", "what a great day"), clip("What a great day"), True, id="context"),
        pytest.param(clip("Oh a great"), clip("oh, a great"), True, id="short-twins-no-context"),
        pytest.param(clip("Oh.", "Hm."), clip("Oh!", "hm"), True, id="short-twins-with-context"),
        pytest.param(clip("Oh.", "Hm."), clip("Oh.", "No."), False, id="short-other-context"),
        pytest.param(clip("...", "?"), clip("...", "?"), True, id="twins-without-a-word"),
        pytest.param(clip("..."), clip("?!"), False, id="different-marks"),
        pytest.param(
            clip("\u4eca\u5929\u5929\u6c14", "x"), clip("\u4eca\u5929\u5929\u6c14", "y"), True,
            id="script-without-spaces",
        ),
        pytest.param(
            clip("\u662f\u7684", "x"), clip("\u662f\u7684", "y"), False,
            id="two-letters-of-such-a-script",
        ),
    ],
)  # fmt: skip
def test_what_connects(one: dict[str, Any], other: dict[str, Any], together: bool) -> None:
    scenes = scene_of({"a": one, "b": other})
    assert (scenes["a"] == scenes["b"] == "a") is together
    assert bool(list(pairs_across({"a": one, "b": other}, {"b"}))) is together


def test_connection_passes_on() -> None:
    first, second = "a line of four words", "and here is another one"
    scenarios = {"c": clip(first), "b": clip(first, second), "a": clip(second), "z": clip("Oh.")}
    assert scene_of(scenarios) == {"a": "a", "b": "a", "c": "a", "z": "z"}


WORDS = st.sampled_from(["oh", "great", "soup", "we", "love"])
CLIPS = st.builds(
    lambda lines: clip(*map(" ".join, lines)),
    st.lists(st.lists(WORDS, min_size=1, max_size=5), min_size=1, max_size=3),
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), CLIPS, max_size=8), st.data())
def test_pairs_are_those_that_share_a_line(
    scenarios: dict[str, dict[str, Any]], data: st.DataObject
) -> None:
    side = data.draw(st.sets(st.sampled_from(sorted(scenarios)))) if scenarios else set()
    shared = shared_lines(scenarios)
    expected = {
        (one, other)
        for pair in combinations(scenarios, 2)
        if any(set(pair) <= set(ids) for ids in shared.values())
        for one, other in (pair, pair[::-1])
        if one in side and other not in side
    }
    found = list(pairs_across(scenarios, side))
    assert found == sorted(found)
    assert {pair[:2] for pair in found} == expected
    assert len(found) == len(expected)
    assert all({one, other} <= set(shared[line]) for one, other, line in found)
    scenes = scene_of(scenarios)
    assert all(scenes[one] == scenes[other] for one, other in expected)


def test_a_line_that_thousands_share_costs_little() -> None:
    scenarios = {f"c{i}": clip("ha ha ha ha", f"different words for {i}") for i in range(20_000)}
    assert set(scene_of(scenarios).values()) == {"c0"}


@pytest.mark.skipif(not MUSTARD.exists(), reason="no ../shared/mustard beside the checkout")
def test_mustard_has_the_scenes_of_the_science_notes() -> None:
    scenarios = json.loads(MUSTARD.read_text(encoding="utf-8"))
    sizes = Counter(scene_of(scenarios).values())
    several = [size for size in sizes.values() if size > 1]
    pairs = {
        pair for ids in shared_lines(scenarios).values() for pair in combinations(sorted(ids), 2)
    }
    equal = sum(scenarios[one]["sarcasm"] == scenarios[other]["sarcasm"] for one, other in pairs)
    assert (len(pairs), sum(several), len(several), max(several), equal) == (24, 38, 17, 4, 14)
