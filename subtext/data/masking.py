"""Neutral names: a clip in which nobody, on the page or in the lines, is called by name.

On MUStARD a table of speakers reaches .69 accuracy, so a name is an answer. The speaker of the
line to judge is always "Speaker A", the others of the context B, C, … in order of appearance: the
letters carry no label. A name in a line becomes its bearer's letter if the bearer speaks in the
clip, else "[name]".

Which words are names: every speaker of the corpus, each word of a longer name, and the names in
MUStARD's lines that are listed below. A speaker's name matches in any case and before 's; one that
is also a word ("rose"), a part and a listed name only with a capital. Labels of unnamed people
(PERSON, MEMBER-GIRL) match only as written in capitals, so that "person" stays a word, and so do
names of shows as the file spells them. A name that neither speaks in the corpus nor stands in the
list remains.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from subtext.data.clips import Clip

_NAME = "[name]"
_SHOW = "[show]"
_MIN_LETTERS = 3
_LETTERS = re.compile(r"[^\W\d_]+")
# A letter on neither side, so that an apostrophe, hyphen, digit or plural s may follow.
_BEFORE, _AFTER = r"(?<![^\W\d_])", r"(?=s?(?![^\W\d_]))"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ROLES = _words(
    "all announcer audience boss both boy brother clerk crowd customer dad daughter doctor driver "
    "everyone father friend girl guest guy host husband kid lady man manager member moderator mom "
    "mother mr mrs ms narrator neighbor neighbour nurse officer other person sister son speaker "
    "student teacher unknown voice waiter waitress wife woman"
)
_WORDS = _words(
    "art bill bob dawn drew faith frank grace hope jack joy june mark may pat penny ray rich rob "
    "rose ruby will"
)

# Other forms of the names of MUStARD's recurring speakers, as they stand in its lines.
_ALIASES = {
    "Bing": "CHANDLER",
    "Buffay": "PHOEBE",
    "Cooper": "SHELDON",
    "Geller": "",  # Ross and Monica
    "Hofstadter": "LEONARD",
    "Howie": "HOWARD",
    "Joe": "JOEY",
    "Koothrappali": "RAJ",
    "Pheebs": "PHOEBE",
    "Rach": "RACHEL",
    "Rajesh": "RAJ",
    "Rostenkowski": "BERNADETTE",
    "Shelly": "SHELDON",
    "Tribbiani": "JOEY",
    "Wolowitz": "HOWARD",
    "Zbornak": "DOROTHY",
}
# Fixed, so that one MUStARD clip served alone is masked like the same clip among all.
_MUSTARD_SPEAKERS = _words(
    "AMY BERNADETTE BLANCHE CHANDLER DOROTHY HOWARD JOEY LEONARD MONICA PENNY PERSON PHOEBE RACHEL "
    "RAJ ROSE ROSS SCOTT SHELDON SOPHIA"
)
# People named in MUStARD's lines who never speak there.
_MUSTARD_OTHERS = _words(
    "Abbott Alex Alice Angela Arnie Barry Bernice Bloom Bonnie Burt Carol Casey Chloe Chris Danny "
    "Dave David Delvecchio Denny Dirk Doug Elizabeth Emily Emma Ernie Farber Francine Frankie "
    "Gablehauser Gavin George Gina Giselle Glen Greg Heckles Hildy Jack Jake Jamie Janice Janine "
    "Jason Jay Jeffries Jenny Jimmy Joan Jordie Josephine Joshua Joyce Judy Julie Kathy Krista "
    "Leslie Lois Lorvis Mark Michael Mike Missy Mona Ned Nicholas Nick Paolo Pete Phillis Priya "
    "Rebecca Richard Riley Roger Ron Seibert Siebert Sonny Stan Stuart Susan Suse Tiffany Tom "
    "Trevor Velula Wheaton Wil Winkle Zack"
)


@dataclass(frozen=True)
class Cast:
    """The names that a corpus gives away. An adapter's record keeps them, so that a clip judged
    alone reads like the same clip in training."""

    speakers: frozenset[str]
    shows: frozenset[str]

    @classmethod
    def of(cls, scenarios: Mapping[str, Clip]) -> Cast:
        """Every speaker and show of `scenarios`."""
        clips = scenarios.values()
        return cls(
            frozenset(
                name for clip in clips for name in (clip["speaker"], *clip["context_speakers"])
            ),
            frozenset(clip["show"] for clip in clips if clip["show"]),
        )

    def record(self) -> dict[str, list[str]]:
        """The names as JSON."""
        return {"speakers": sorted(self.speakers), "shows": sorted(self.shows)}

    @classmethod
    def of_record(cls, record: Mapping[str, list[str]]) -> Cast:
        """The cast that `record` was made of."""
        return cls(frozenset(record["speakers"]), frozenset(record["shows"]))


def masked_clip(clip: Clip, cast: Cast) -> dict[str, Any]:
    """Return a copy of `clip` with neutral speakers, and neutral names inside its lines.

    The names are those of `cast` and of the clip itself.
    """
    letters = _letters(clip)
    replace = _replacer(letters, clip, cast)
    return {
        **clip,
        "speaker": letters[_key(clip["speaker"])],
        "context_speakers": [letters[_key(speaker)] for speaker in clip["context_speakers"]],
        "utterance": replace(clip["utterance"]),
        "context": [replace(line) for line in clip["context"]],
    }


def _letters(clip: Clip) -> dict[str, str]:
    speakers = dict.fromkeys(map(_key, [clip["speaker"], *clip["context_speakers"]]))
    return {speaker: f"Speaker {_letter(index)}" for index, speaker in enumerate(speakers)}


def _letter(index: int) -> str:
    """A … Z, AA, AB, …"""
    text = ""
    while index >= 0:
        index, digit = divmod(index, 26)
        text, index = chr(ord("A") + digit) + text, index - 1
    return text


def _key(name: str) -> str:
    return " ".join(name.casefold().split())


def _replacer(letters: Mapping[str, str], clip: Clip, cast: Cast) -> Callable[[str], str]:
    any_case: dict[str, str] = {}
    as_name = {key: letters.get(key, _NAME) for key in map(_key, _MUSTARD_OTHERS)}
    exact = dict.fromkeys(cast.shows, _SHOW)
    as_name |= {_key(alias): letters.get(_key(of), _NAME) for alias, of in _ALIASES.items()}
    own = {clip["speaker"], *clip["context_speakers"]}
    # Sorted, so that the text does not depend on the order of clips.
    for speaker in sorted(_MUSTARD_SPEAKERS | cast.speakers | own):
        key, words = _key(speaker), _LETTERS.findall(speaker.casefold())
        shown = letters.get(key, _NAME)
        if all(word in _ROLES or len(word) == 1 for word in words):
            if speaker.isupper() and len(speaker) >= _MIN_LETTERS:
                exact[speaker] = shown
            continue
        (as_name if key in _WORDS else any_case)[key] = shown
        for word in words:
            if len(words) > 1 and len(word) >= _MIN_LETTERS and word not in _ROLES:
                # A surname that two speakers share names neither.
                as_name[word] = shown if as_name.get(word, shown) == shown else _NAME

    def shown_for(match: re.Match[str]) -> str:
        text = match.group()
        key = _key(text)
        if key in any_case:
            return any_case[key]
        if key in as_name and text[0].isupper():
            return as_name[key]
        return exact.get(" ".join(text.split()), text)

    pattern = _pattern({*any_case, *as_name, *exact})
    return lambda line: pattern.sub(shown_for, line)


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    alternatives = "|".join(r"\s+".join(map(re.escape, name.split())) for name in longest_first)
    return re.compile(f"{_BEFORE}(?:{alternatives}){_AFTER}", re.IGNORECASE)
