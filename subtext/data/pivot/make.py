"""The Pivot Set: clips whose words alone mislead, or do not decide (science notes, section 12).

Scores come from `subtext.data.pivot.committee`, which reads words only; the rule and the file are
described in `subtext.data.pivot.file`. Nothing is picked by hand, and no model that knows the
delivery has a say.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subtext import strict_json
from subtext.data.clips import Scenarios
from subtext.data.folder import PIVOT_FILE, PROSODY_FILE, resolve_data_root
from subtext.data.pivot.committee import MEMBERS, text_scores
from subtext.data.pivot.file import (
    AMBIGUOUS,
    MISLEADING,
    NOTE,
    PIVOT_SCHEMA,
    NoPivotSetError,
    PivotConfig,
    inadmissible_reason,
    pivot_digest,
    select_pivot,
)
from subtext.data.scenarios import load_scenarios
from subtext.errors import DataError, Problem, reason_of
from subtext.progress import Watcher, nobody

if TYPE_CHECKING:
    from rich.table import Table

TEXT_EASY = "text_easy"
_TITLE = "Pivot Set refused"
_FEW_CLIPS = 100

logger = logging.getLogger(__name__)


def make_pivot_set(
    root: Path | str | None = None,
    config: PivotConfig | None = None,
    watcher: Watcher = nobody,
) -> dict[str, Any]:
    """Write `pivot_set.json` into the data root and return its content; replaces an older set.

    `watcher` sees stage "pivot" (foldings). Raises DataError for clips that do not load, and
    NoPivotSetError where they are too few or none is admissible.
    """
    folder = resolve_data_root(str(root) if root is not None else "")
    path = folder / PIVOT_FILE
    content = pivot_set(load_scenarios(folder, with_pivot=False), config, watcher)
    try:
        strict_json.write(path, content)
    except OSError as error:
        problem = Problem(
            PIVOT_FILE, "file", str(path), f"can't be written: {reason_of(error)}",
            "Make the folder writable, or copy the data to one that is.",
        )  # fmt: skip
        raise DataError(_TITLE, [problem]) from error
    return content


def pivot_set(
    scenarios: Scenarios, config: PivotConfig | None = None, watcher: Watcher = nobody
) -> dict[str, Any]:
    """Return the content of `pivot_set.json` for these clips (`subtext.data.pivot.file`)."""
    import sklearn

    config = config or PivotConfig()
    scenarios = {clip_id: scenarios[clip_id] for clip_id in sorted(scenarios)}
    reasons = {i: inadmissible_reason(clip["prosody"], config) for i, clip in scenarios.items()}
    admissible = [clip_id for clip_id, reason in reasons.items() if not reason]
    if not admissible:
        raise NoPivotSetError(_TITLE, [_none_admissible(Counter(reasons.values()))])
    scores = text_scores(scenarios, config, watcher)
    clips = select_pivot(scores, scenarios, config)
    strata = {clip_id: entry["stratum"] for clip_id, entry in clips.items()}
    groups: dict[str, list[str]] = {
        name: [i for i in admissible if strata.get(i, TEXT_EASY) == name]
        for name in (MISLEADING, AMBIGUOUS, TEXT_EASY)
    }
    logger.info(
        "Pivot Set: %d ambiguous, %d misleading; the words decide %d more",
        *(len(groups[name]) for name in (AMBIGUOUS, MISLEADING, TEXT_EASY)),
    )
    if len(scenarios) < _FEW_CLIPS:
        logger.warning(
            "text models that learn from %d clips know little: read the Pivot Set of fewer than "
            "%d as a rehearsal", len(scenarios), _FEW_CLIPS,
        )  # fmt: skip
    return {
        "schema": PIVOT_SCHEMA,
        "note": NOTE,
        "config": config.model_dump(mode="json"),
        "committee": {"members": MEMBERS, "names": "masked", "scikit-learn": sklearn.__version__},
        "digest": pivot_digest(scenarios),
        "counts": {
            "clips": len(scenarios),
            "admissible": len(admissible),
            "inadmissible": dict(Counter(filter(None, reasons.values()))),
            **{name: _by_label(ids, scenarios) for name, ids in groups.items()},
        },
        "text_accuracy": {
            "all": _accuracy(scenarios, scores, scenarios),
            "admissible": _accuracy(admissible, scores, scenarios),
            **{name: _accuracy(ids, scores, scenarios) for name, ids in groups.items()},
        },
        "clips": clips,
        "text_scores": scores,
    }


def render_pivot(content: Mapping[str, Any]) -> Table:
    """Return what `rich` prints of a Pivot Set: clips by stratum and label, text accuracy."""
    from rich.table import Table

    counts, accuracy = content["counts"], content["text_accuracy"]
    table = Table(
        title=f"{len(content['clips'])} Pivot clips of {counts['admissible']} admissible ones",
        title_justify="left",
    )
    for column in ("stratum", "sarcastic", "sincere", "text accuracy"):
        table.add_column(column)
    for name in (AMBIGUOUS, MISLEADING, TEXT_EASY):
        shown = "-" if accuracy[name] is None else f"{accuracy[name]:.3f}"
        table.add_row(name, *(str(counts[name][key]) for key in ("sarcastic", "sincere")), shown)
    return table


def _none_admissible(reasons: Counter[str]) -> Problem:
    return Problem(
        PROSODY_FILE, "clips", dict(reasons), "no clip is admissible: the Pivot Set is about "
        "clips whose delivery was measured, and would be empty",
        "Measure prosody first: `subtext prosody from-tracks`, or `python -m flows.data_flow`.",
    )  # fmt: skip


def _by_label(ids: Collection[str], scenarios: Scenarios) -> dict[str, int]:
    n_sarcastic = sum(scenarios[clip_id]["sarcasm"] for clip_id in ids)
    return {"sarcastic": n_sarcastic, "sincere": len(ids) - n_sarcastic}


def _accuracy(
    ids: Collection[str], scores: Mapping[str, Any], scenarios: Scenarios
) -> float | None:
    """Accuracy of t > 0.5 in 0..1; a t of exactly 0.5 earns half. None without clips."""
    if not ids:
        return None
    leans = [(scores[i]["text_score"] - 0.5) * (1 if scenarios[i]["sarcasm"] else -1) for i in ids]
    earned = sum(0.5 if lean == 0 else float(lean > 0) for lean in leans)
    return round(earned / len(leans), 4)
