"""Syllables of a transcript, counted from its letters.

A syllable is a group of vowel letters (a e i o u y), less a silent final e (not after l, as in
"table"), at least one a word. It is a rule of spelling, not a dictionary: "create" gets one too
few, and digits count nothing. On the 210 measured MUStARD clips it gives exactly the counts behind
`syllables_per_s` of their reference file.
"""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"'*[a-z][a-z']*")
_VOWELS = re.compile(r"[aeiouy]+")


def count_syllables(text: str) -> int:
    """Return the number of syllables in `text`, 0 for text without a letter a to z."""
    plain = unicodedata.normalize("NFKD", text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    letters = "".join(char for char in plain.lower() if not unicodedata.combining(char))
    return sum(_syllables_of(word) for word in _WORD.findall(letters))


def _syllables_of(word: str) -> int:
    groups = len(_VOWELS.findall(word))
    if word.endswith("e") and not word.endswith("le"):
        groups -= 1
    return max(groups, 1)
