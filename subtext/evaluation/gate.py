"""Whether a version becomes the champion. Reads metrics.json, and nothing else.

A rule passes only on figures that are there and finite, and the version is promoted only where
every rule passes. To beat base or champion is a verdict "better" (p < 0.05 after Holm's correction
and an interval above zero) and a gain of at least the margin; to beat a baseline is the verdict
alone. So a tie never promotes, and a policy that is no better than its base is promoted in fewer
than 5 % of runs.

What blocks besides the comparisons: alarms of training, and warnings about the policy's behaviour,
such as constant answers. A leak of the split is about the data, and does not: the baselines say how
far it carries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from subtext.config import GateConfig
from subtext.evaluation.statistics import ALPHA, BETTER
from subtext.figures import percent

PROMOTE, STAY = "promote", "stay"
MIN_SHARED_CLIPS = 20
"""Fewest clips on which a champion is compared."""

_ABOUT_THE_DATA = ("leak",)
_FIGURES = ("n", "accuracy", "accuracy_against", "difference", "p_holm")

Evaluation = Mapping[str, Any]
Row = Mapping[str, Any]


def decide(evaluation: Evaluation, gate: GateConfig) -> dict[str, Any]:
    """Return `{"decision": "promote" | "stay", "reasons": […]}` for `evaluation` (metrics.json).

    A reason has `rule`, `passed` and `text`, one sentence with its figures. Rules: `beats_base`,
    `beats_champion` (only where there is one), `beats_baselines`, `well_formed`, `no_alarm`,
    `no_warning`.
    """
    return decision_of(list(_reasons(evaluation, gate)))


def decision_of(reasons: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return gate.json: `reasons`, and "promote" only where every one of them passed."""
    passed = bool(reasons) and all(reason["passed"] for reason in reasons)
    return {"decision": PROMOTE if passed else STAY, "reasons": list(reasons)}


def reason(rule: str, passed: bool, text: str) -> dict[str, Any]:
    """Return one entry of `reasons`."""
    return {"rule": rule, "passed": passed, "text": text}


def _reasons(evaluation: Evaluation, gate: GateConfig) -> Iterator[dict[str, Any]]:
    rows = {row["name"]: row for row in evaluation.get("comparisons", ())}
    yield reason("beats_base", *_beats("the base", rows.get("base"), gate.margin))
    if champion := evaluation.get("champion"):
        yield reason("beats_champion", *_beats_champion(champion, rows.get("champion"), gate))
    yield reason("beats_baselines", *_beats_baselines(rows, gate.baselines))
    yield reason("well_formed", *_well_formed(evaluation, gate.min_well_formed))
    yield reason("no_alarm", *_none_of("alarms of training", evaluation.get("alarms")))
    yield reason("no_warning", *_none_of("warnings about behaviour", _behaviour(evaluation)))


def _beats(name: str, row: Row | None, margin: float) -> tuple[bool, str]:
    if row is None or not _is_whole(row):
        return False, f"A comparison with {name} is missing or has figures that are no numbers."
    figures = _figures_of(row)
    if not _is_better(row):
        return False, f"Not better than {name}: {figures}."
    if row["difference"] < margin:
        return False, f"Better than {name} by less than the margin of {margin:g}: {figures}."
    return True, f"Better than {name} by the margin of {margin:g} or more: {figures}."


def _beats_champion(
    champion: Mapping[str, Any], row: Row | None, gate: GateConfig
) -> tuple[bool, str]:
    name = f"the champion, version {champion['version']}"
    n_shared = champion["n_shared"]
    if row is None or n_shared < MIN_SHARED_CLIPS or row["n"] < MIN_SHARED_CLIPS:
        why = champion.get("reason") or (
            f"only {n_shared} judged clips are new to it, and {MIN_SHARED_CLIPS} are needed"
        )
        return False, f"Not comparable with {name}: {why}."
    return _beats(name, row, gate.margin)


def _beats_baselines(rows: Mapping[str, Row], names: Sequence[str]) -> tuple[bool, str]:
    if not names:
        return True, "No baseline is to be beaten (gate.baselines is empty)."
    missing = [name for name in names if name not in rows or not _is_whole(rows[name])]
    if missing:
        return False, f"Baselines without comparison: {', '.join(missing)}."
    unbeaten = [name for name in names if not _is_better(rows[name])]
    told = ", ".join(f"{name} ({_difference_of(rows[name])})" for name in unbeaten or names)
    return not unbeaten, f"{'Not better' if unbeaten else 'Better'} than the baselines: {told}."


def _well_formed(evaluation: Evaluation, least: float) -> tuple[bool, str]:
    trained = evaluation.get("passes", {}).get("trained", {})
    rate = trained.get("strict_rate")
    if not _is_finite(rate):
        return False, "The share of strictly well-formed answers is missing."
    told = f"{percent(rate, 1)} of {trained['n_eval_clips']} answers are strictly well-formed"
    return rate >= least, f"{told}; at least {percent(least, 1)} must be."


def _behaviour(evaluation: Evaluation) -> list[Mapping[str, str]] | None:
    warnings = evaluation.get("warnings")
    if warnings is None:
        return None
    return [warning for warning in warnings if warning["name"] not in _ABOUT_THE_DATA]


def _none_of(what: str, found: Sequence[Mapping[str, str]] | None) -> tuple[bool, str]:
    if found is None:
        return False, f"Whether there are {what} is not on record."
    if not found:
        return True, f"There are no {what}."
    return False, f"There are {what}: {'; '.join(item['message'] for item in found)}"


def _is_better(row: Row) -> bool:
    low: float = row["interval"][0]
    return bool(row["verdict"] == BETTER and row["p_holm"] < ALPHA and low > 0)


def _is_whole(row: Row) -> bool:
    bounds = row.get("interval") or (None,)
    return "verdict" in row and all(map(_is_finite, (*(row.get(key) for key in _FIGURES), *bounds)))


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _figures_of(row: Row) -> str:
    return (
        f"accuracy {row['accuracy']:.3f} against {row['accuracy_against']:.3f} on {row['n']} "
        f"clips, difference {_difference_of(row)}"
    )


def _difference_of(row: Row) -> str:
    low, high = row["interval"]
    return f"{row['difference']:+.3f}, 95 % {low:+.3f} to {high:+.3f}, Holm's p {row['p_holm']:.2g}"
