"""Syllables of a transcript by its letters, on words whose count is known and on 210 real lines."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtext import strict_json
from subtext.prosody.syllables import count_syllables

MUSTARD = Path(__file__).resolve().parents[3] / "shared" / "mustard"

COUNTS = [
    ("", None, "nothing is said"),
    ("... 75 !", None, "digits and marks have no letters"),
    ("wonderful", 3, "three groups of vowel letters"),
    ("make", 1, "a final e is silent"),
    ("the", 1, "a word has at least one"),
    ("table", 2, "le is a syllable of its own"),
    ("hmm", 1, "no vowel letter"),
    ("I'd", 1, "an apostrophe stays inside the word"),
    ("I\N{RIGHT SINGLE QUOTATION MARK}d", 1, "a typographic one as well"),
    ("'tis", 1, "and before it"),
    ("' '", None, "but alone it is no word"),
    ("\N{GRINNING FACE}", None, "a picture is not read aloud"),
    ("\u043a\u043e\u043d\u0435\u0447\u043d\u043e ok", None, "most letters are Cyrillic"),
    ("ok, \u043d\u0443", 1, "half of them are not"),
    ("\u4eca\u5929\u5929\u6c14", None, "no letter a to z"),
    ("drive-thru", 2, "a hyphen parts two words"),
    ("YES", 1, "capitals count as others"),
    ("na\u00efve", 1, "accents are dropped: ai is one group"),
    ("d\u00e9j\u00e0 vu", 3, "accented vowels count"),
    ("create", 1, "ea is one group and the e silent: the rule errs by one"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "count"), [case[:2] for case in COUNTS], ids=[case[2] for case in COUNTS]
)
def test_syllables_of_known_words(text: str, count: int | None) -> None:
    assert count_syllables(text) == count


@given(*[st.text("abeiy' .-", max_size=20).filter(lambda text: re.search("[a-z]", text))] * 2)
def test_lines_add_up(first: str, second: str) -> None:
    total = (count_syllables(first) or 0) + (count_syllables(second) or 0)
    assert count_syllables(f"{first}\n{second}") == total


@given(st.text())
def test_any_text_has_some_syllables_or_says_nothing(text: str) -> None:
    count = count_syllables(text)
    assert count is None or count >= 1


@pytest.mark.skipif(not MUSTARD.is_dir(), reason="the real MUStARD data is not beside the checkout")
def test_real_lines_have_the_counts_of_the_independent_script() -> None:
    clips = strict_json.read(MUSTARD / "sarcasm_data.json")
    with (MUSTARD / "prosody_210_reference.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 210
    for row in rows:
        count = count_syllables(clips[row["clip_id"]]["utterance"])
        theirs = float(row["syllables_per_s"]) * float(row["duration_s"])
        assert count == pytest.approx(theirs, rel=5e-4)
