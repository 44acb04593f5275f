"""Who trains, who is held out, and in which order the held out are judged.

The seed's split and order are kept so that its results stay comparable.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from subtext.errors import ConfigError, DataError, Problem

Scenarios = Mapping[str, Mapping[str, Any]]

logger = logging.getLogger(__name__)


def split_clip_ids(
    scenarios: Scenarios, eval_ratio: float = 0.2, seed: int = 42
) -> tuple[set[str], set[str]]:
    """Return (training ids, held-out ids): disjoint, together all clips, the same for a seed.

    The sorted ids are shuffled and the first `int(n * eval_ratio)` are held out. Raises
    ConfigError for a ratio outside (0, 1), DataError when a side would be empty.
    """
    if isinstance(eval_ratio, bool) or not 0 < eval_ratio < 1:
        remedy = "Give the share of clips to hold out, e.g. 0.2."
        problem = Problem("split", "data.eval_ratio", eval_ratio, "is not between 0 and 1", remedy)
        raise ConfigError("Configuration refused", [problem])
    ids = sorted(scenarios)
    random.Random(seed).shuffle(ids)
    n_eval = int(len(ids) * eval_ratio)
    eval_ids, train_ids = set(ids[:n_eval]), set(ids[n_eval:])
    if not eval_ids or not train_ids:
        empty = "training" if eval_ids else "held-out"
        problem = Problem(
            "split", "data.eval_ratio", eval_ratio,
            f"leaves no {empty} clip of {len(ids)}", "Add clips, or change data.eval_ratio.",
        )  # fmt: skip
        raise DataError("Split refused", [problem])
    logger.info(
        "split: %d train (%d Pivot), %d held out (%d Pivot)",
        len(train_ids), _n_pivot(train_ids, scenarios),
        len(eval_ids), _n_pivot(eval_ids, scenarios),
    )  # fmt: skip
    return train_ids, eval_ids


def select_clips(ids: set[str], scenarios: Scenarios, require_prosody: bool) -> list[str]:
    """Return `ids` sorted, without the clips that lack prosody where that is required.

    Applied after the split of all clips, so that who is held out is the same in every profile.
    Raises DataError when no clip is left.
    """
    selected = [
        clip_id for clip_id in sorted(ids) if scenarios[clip_id]["prosody"] or not require_prosody
    ]
    if not selected:
        problem = Problem(
            "split", "data.require_prosody", require_prosody, f"leaves none of {len(ids)} clips",
            "Put prosody.json beside sarcasm_data.json (`subtext prosody from-tracks`), or set "
            "data.require_prosody=false.",
        )  # fmt: skip
        raise DataError("Split refused", [problem])
    logger.info(
        "%d of %d clips selected (require_prosody=%s)", len(selected), len(ids), require_prosody
    )
    return selected


def _n_pivot(ids: set[str], scenarios: Scenarios) -> int:
    return sum(1 for clip_id in ids if scenarios[clip_id].get("is_pivot"))


def judging_order(
    clip_ids: Iterable[str], scenarios: Scenarios, clip_order: Literal["seed", "stratified"]
) -> list[str]:
    """Return the order in which held-out clips are judged, until as many as wanted are.

    "seed": sorted ids, of which on MUStARD the first are nearly all of one show. "stratified":
    every beginning holds labels and shows in about their proportions; each clip stands at its
    relative rank within its (label, show) group.
    """
    ids = sorted(clip_ids)
    if clip_order == "seed":
        return ids
    groups: dict[tuple[bool, str], list[str]] = defaultdict(list)
    for clip_id in ids:
        groups[scenarios[clip_id]["sarcasm"], scenarios[clip_id]["show"]].append(clip_id)
    placed = [
        ((rank + 0.5) / len(members), clip_id)
        for members in groups.values()
        for rank, clip_id in enumerate(members)
    ]
    return [clip_id for _, clip_id in sorted(placed)]
