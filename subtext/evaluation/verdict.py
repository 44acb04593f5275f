"""One sentence that says what an evaluation shows, and what stands against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from subtext.evaluation.statistics import BETTER, NOT_DISTINGUISHABLE, WORSE
from subtext.figures import percent

_RARELY = 0.5
_WORDS = {
    BETTER: "better than",
    NOT_DISTINGUISHABLE: "not distinguishable from",
    WORSE: "worse than",
}
_DOUBTS = {"alarms": "alarm", "warnings": "warning"}

Rows = Sequence[Mapping[str, Any]]


def verdict(evaluation: Mapping[str, Any]) -> str:
    """Return the sentence for `evaluation` (metrics.json without its verdict).

    It gives the accuracy with its interval, says whether that beats base, champion and baselines,
    and counts the alarms and warnings. It never says "better" where a comparison does not.
    """
    trained = evaluation["passes"]["trained"]
    low, high = trained["accuracy_interval"]
    rows = evaluation["comparisons"]
    found = [
        f"{_WORDS[row['verdict']]} {_policy(row['name'], evaluation)}"
        for row in rows
        if row["kind"] == "policy"
    ]
    found += _baselines([row for row in rows if row["kind"] == "baseline"])
    sentence = (
        f"{percent(trained['accuracy'], 1)} of {trained['n_eval_clips']} held-out clips right "
        f"(95 % interval {100 * low:.1f} to {percent(high, 1)}): {', '.join(found)}"
    )
    doubts = [_counted(len(evaluation[key]), noun) for key, noun in _DOUBTS.items()]
    if against := " and ".join(filter(None, doubts)):
        plural = sum(len(evaluation[key]) for key in _DOUBTS) > 1
        return f"{sentence}; {against} {'stand' if plural else 'stands'} against it."
    return f"{sentence}."


def _policy(name: str, evaluation: Mapping[str, Any]) -> str:
    rate = evaluation["passes"][name]["strict_rate"]
    if rate < _RARELY:
        return f"the {name} (well-formed in {percent(rate)})"
    return f"the {name}"


def _baselines(rows: Rows) -> Iterator[str]:
    for said, words in _WORDS.items():
        names = [row["name"] for row in rows if row["verdict"] == said]
        if len(names) == len(rows) > 1:
            yield f"{words} all {len(rows)} baselines"
        elif len(names) == 1:
            yield f"{words} the baseline {names[0]}"
        elif names:
            yield f"{words} {len(names)} of {len(rows)} baselines"


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' if n > 1 else ''}" if n else ""
