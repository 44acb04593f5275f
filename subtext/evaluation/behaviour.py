"""Ways of answering that a good figure can hide, each found by a rule.

- `malformed_answers`: nearly all answers; then nothing else is said.
- `constant_answers`: nearly every well-formed answer gives the same label, or p(sarcastic).
- `one_cue`: one word of the prosody decides the label nearly everywhere, and the policy is right no
  more often than that word alone would be.
- `copied_prosody`, `copied_transcript`: the reasoning repeats the prompt in long runs of words.
- `repeated_reasoning`: few distinct reasonings, or one that says the same over and over.
- `contradicted_prosody`: the reasoning says of a cue what the prompt does not.

Quoting is not copying: a reasoning that names a line or two of the prosody and then weighs it
(`subtext.policy.warm_start` teaches that) stays far below the limits. Nothing is said of fewer than
`MIN_CLIPS` clips.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from subtext.answer import THINK_CLOSE, THINK_OPEN
from subtext.config import PromptConfig
from subtext.data.clips import Scenarios
from subtext.data.masking import Cast
from subtext.evaluation.records import Records
from subtext.figures import percent
from subtext.prompts import build_full_observation

MIN_CLIPS = 20
_NEARLY_ALL = 0.95
_COPIED = 0.5  # of a reasoning's words, in the median clip
_RUN = 3  # words in a row that make a copy; longer runs miss copies with a word between lines
_FEW_DISTINCT = 0.25
_CONTRADICTED = 0.2  # of what reasonings say about cues
_EXPLAINED = 0.75  # of the labels that are not the commonest
_PROSODY_HEADING = "=== Prosody features ==="
_NO_WORD = ("contour", "prosody")
_CUE = re.compile(
    r"\b(pitch level|pitch variation|pitch range|pitch slope|final slope|loudness variation|tempo"
    r"|pauses|voicing|clarity)(?:\s*:|\s+is|\s+was)?\s+(low|medium|high|slow|fast|none|one|two"
    r"|several|no reference|not measurable)\b"
)

Found = Iterator[tuple[str, str]]


def behaviour_warnings(
    records: Records, scenarios: Scenarios, prompt: PromptConfig
) -> list[dict[str, str]]:
    """Return `{"name", "message"}` of each way of answering above that `records` show.

    `scenarios` are described (`subtext.prosody.reference`), `prompt` is what the policy read.
    """
    if len(records) < MIN_CLIPS:
        return []
    if n_malformed := _nearly_all_malformed(records):
        message = f"{n_malformed} of {len(records)} answers are malformed: they say nothing"
        return [{"name": "malformed_answers", "message": message}]
    cast = Cast.of(scenarios)
    messages = [
        build_full_observation(record["clip_id"], scenarios, prompt, cast) for record in records
    ]
    transcripts, prosody = zip(
        *(text.rsplit(_PROSODY_HEADING, 1) for text in messages), strict=True
    )
    reasonings = [_reasoning(record["completion_text"]) for record in records]
    found = [
        *_constant(records),
        *_one_cue(records, prosody),
        *_copied("prosody", reasonings, prosody),
        *_copied("transcript", reasonings, transcripts),
        *_repeated(reasonings),
        *_contradicted(reasonings, prosody),
    ]
    return [{"name": name, "message": message} for name, message in found]


def _nearly_all_malformed(records: Records) -> int:
    """How many are malformed, or 0 where that is not nearly all."""
    n_malformed = sum(record["predicted"] is None for record in records)
    return n_malformed if n_malformed >= _NEARLY_ALL * len(records) else 0


def _constant(records: Records) -> Found:
    # A few malformed answers must not hide that all others are the same.
    answered = [record for record in records if record["predicted"]]
    judged = answered if len(answered) >= MIN_CLIPS else records
    for what, values in (
        ("label", [record["predicted"] or "malformed" for record in judged]),
        ("p(sarcastic)", [record["p_sarcastic"] for record in judged]),
    ):
        (value, n_same), *_ = Counter(values).most_common(1)
        if n_same >= _NEARLY_ALL * len(judged):
            yield (
                "constant_answers",
                f"{n_same} of {len(judged)} answers give the same {what}, {value}: the policy "
                "hardly looks at the clip",
            )


def _one_cue(records: Records, blocks: Sequence[str]) -> Found:
    judged = [
        (_cue_words(block), record)
        for record, block in zip(records, blocks, strict=True)
        if record["predicted"]
    ]
    cues = sorted({cue for words, _ in judged for cue in words})
    if len(judged) < MIN_CLIPS or not cues:
        return
    cue = max(cues, key=lambda name: _n_decided(name, judged, "predicted"))
    n_decided = _n_decided(cue, judged, "predicted")
    n_commonest = _n_commonest([record["predicted"] for _, record in judged])
    n_right = sum(record["correct"] for _, record in judged)
    decides = n_decided >= _NEARLY_ALL * len(judged)
    # Goodman and Kruskal's lambda: how much better than by the commonest label the cue tells it.
    explains = n_decided - n_commonest >= _EXPLAINED * max(1, len(judged) - n_commonest)
    if decides and explains and n_right <= _n_decided(cue, judged, "gold"):
        yield (
            "one_cue",
            f'"{cue}" alone gives the label of {n_decided} of {len(judged)} answers, and is right '
            "at least as often as they are: the policy answers by one cue",
        )


def _n_decided(
    cue: str, judged: Sequence[tuple[Mapping[str, str], Mapping[str, Any]]], field: str
) -> int:
    """How many clips have the `field` that is commonest among those with the same word of `cue`."""
    groups: dict[str | None, list[str]] = defaultdict(list)
    for words, record in judged:
        groups[words.get(cue)].append(record[field])
    return sum(map(_n_commonest, groups.values()))


def _cue_words(block: str) -> dict[str, str]:
    """The first word or words of each line of the prosody, e.g. {"tempo": "slow"}."""
    lines = [line.split(": ", 1) for line in block.splitlines() if ": " in line]
    return {cue: text.split(",")[0] for cue, text in lines if cue not in _NO_WORD}


def _copied(what: str, reasonings: Sequence[str], sources: Sequence[str]) -> Found:
    shares = [
        _share_in_runs(_words(reasoning), _runs(_words(source)))
        for reasoning, source in zip(reasonings, sources, strict=True)
    ]
    if (share := median(shares)) >= _COPIED:
        yield (
            f"copied_{what}",
            f"{percent(share)} of the median reasoning's words stand in the prompt's {what} in the "
            f"same order, in runs of {_RUN} or more: it repeats instead of weighing",
        )


def _repeated(reasonings: Sequence[str]) -> Found:
    words = [_words(reasoning) for reasoning in reasonings]
    n_distinct = len({tuple(said) for said in words})
    if n_distinct < _FEW_DISTINCT * len(words):
        yield (
            "repeated_reasoning",
            f"{len(words)} clips have {n_distinct} different reasonings between them: they do not "
            "follow from the clip",
        )
    if (share := median(map(_share_said_before, words))) >= _COPIED:
        yield (
            "repeated_reasoning",
            f"{percent(share)} of the median reasoning's words were said before in it, in runs of "
            f"{_RUN} or more: it fills length",
        )


def _contradicted(reasonings: Sequence[str], blocks: Sequence[str]) -> Found:
    agree = [
        said in _cues(block)
        for reasoning, block in zip(reasonings, blocks, strict=True)
        for said in _cues(reasoning)
    ]
    n_against = len(agree) - sum(agree)
    if len(agree) >= MIN_CLIPS and n_against >= _CONTRADICTED * len(agree):
        yield (
            "contradicted_prosody",
            f"{n_against} of the {len(agree)} times that a reasoning states a cue, as in "
            '"tempo: slow", the prompt says otherwise: the evidence is made up',
        )


def _cues(text: str) -> list[tuple[str, str]]:
    """What a text says of which cue, e.g. ("tempo", "slow")."""
    return _CUE.findall(" ".join(text.lower().split()))


def _reasoning(text: str) -> str:
    """The first think block, also one that the record cut; "" where there is none."""
    return text.partition(THINK_OPEN)[2].partition(THINK_CLOSE)[0]


def _n_commonest(values: Sequence[str]) -> int:
    return Counter(values).most_common(1)[0][1]


def _words(text: str) -> list[str]:
    """Words in lower case without the punctuation around them; numbers keep sign and point."""
    return [word for part in text.lower().split() if (word := part.strip(".,;:!?\"'()*"))]


def _runs(words: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(words[start : start + _RUN]) for start in range(len(words) - _RUN + 1)}


def _share_in_runs(words: Sequence[str], runs: set[tuple[str, ...]]) -> float:
    """The share of `words` that lie in one of `runs`; 0 for no words."""
    inside = {
        position
        for start in range(len(words) - _RUN + 1)
        if tuple(words[start : start + _RUN]) in runs
        for position in range(start, start + _RUN)
    }
    return len(inside) / len(words) if words else 0.0


def _share_said_before(words: Sequence[str]) -> float:
    """The share of `words` in runs that stand earlier among them; 0 for no words."""
    seen: set[tuple[str, ...]] = set()
    inside: set[int] = set()
    for start in range(len(words) - _RUN + 1):
        run = tuple(words[start : start + _RUN])
        if run in seen:
            inside.update(range(start, start + _RUN))
        seen.add(run)
    return len(inside) / len(words) if words else 0.0
