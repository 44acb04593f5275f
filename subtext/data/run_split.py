"""How a run divides its clips, and whether its split.json still says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from subtext.config import SPLITS_USING, RunConfig
from subtext.data.clips import Scenarios
from subtext.data.folder import resolve_data_root
from subtext.data.splits import divide, judging_order, select_clips
from subtext.errors import Problem
from subtext.run_records import remedy

_HALVES = ("train", "held_out", "judged")


def divided(scenarios: Scenarios, config: RunConfig) -> dict[str, Any]:
    """Return `train`, `held_out` and `judged` ids, and what in `config.data` they come from.

    The split is of all clips; `data.require_prosody` filters both halves after it, so that who
    is held out is the same in every profile. What the kind of split makes no use of is null.
    Raises DataError where the clips can't be divided so, or a half is left empty.
    """
    data, evaluation = config.data, config.evaluation
    train, held_out = divide(scenarios, data, resolve_data_root(data.root))
    trained = select_clips(train, scenarios, data.require_prosody)
    judged = select_clips(held_out, scenarios, data.require_prosody)
    used = {
        name: getattr(data, name) if data.split in splits else None
        for name, splits in SPLITS_USING.items()
    }
    order = judging_order(judged, scenarios, evaluation.clip_order)
    return {
        "train": trained,
        "held_out": judged,
        "judged": order[: evaluation.n_eval_clips or None],
        "kind": data.split,
        "eval_ratio": used["eval_ratio"],
        "seed": used["split_seed"],
        "test_shows": used["test_shows"] and list(used["test_shows"]),
        "fold": used["fold"],
    }


def split_problems(
    path: Path, split: Mapping[str, Any], scenarios: Scenarios, config: RunConfig
) -> Iterator[Problem]:
    """Yield what in `split`, read from `path`, is not as `config` divides `scenarios`.

    A clip moved by hand from one half to the other shows in nothing else.
    """
    for name, expected in divided(scenarios, config).items():
        found: Any = split.get(name)
        if found == expected:
            continue
        problem = f"is not {expected!r}, as in config.json"
        if name in _HALVES:
            # Nothing differs where only the order does, or a clip is there twice.
            found = sorted({*split[name]} ^ {*expected}) or found
            problem = f"are not where data.split={config.data.split} puts them"
            if unknown := [clip_id for clip_id in found if clip_id not in scenarios]:
                found, problem = unknown, "are no clips of the corpus"
        yield Problem(str(path), name, found, problem, remedy(path))
