"""Who trains, who is held out, and in which order the held out are judged.

`divide` is the entry point: `data.split` says what a split keeps apart.

| kind | held out | size |
|---|---|---|
| random | the seed's: a shuffle of the ids, and only that | int(n * eval_ratio) |
| stratified | labels in the corpus's proportion | int(n * eval_ratio) |
| scene | whole scenes (`subtext.data.scenes`) | as near as the scenes allow, see `group_split` |
| speaker | whole speakers, by name | as near as the speakers allow, see `group_split` |
| show | every clip of `data.test_shows`: MUStARD's "speaker-independent" protocol | theirs |
| official | the test part of official fold `data.fold` | the fold's |

Every kind is a function of the clips and the seed; the order of the file counts only where
"official" reads positions in it. The seed's split and order are kept so that its results stay
comparable; that split separates scenes and knows nothing of speakers.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from subtext.config import DataConfig
from subtext.data.clips import Scenarios
from subtext.data.folds import read_folds
from subtext.data.group_split import Sides, hold_out, refusal
from subtext.data.scenes import scene_of
from subtext.errors import ConfigError, DataError, Problem


def split_clip_ids(scenarios: Scenarios, eval_ratio: float = 0.2, seed: int = 42) -> Sides:
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
    return train_ids, eval_ids


def divide(scenarios: Scenarios, data: DataConfig, root: Path) -> Sides:
    """Return (training ids, held-out ids) of the kind `data.split`: disjoint, together all clips.

    `root` is the corpus's folder, where the official folds lie. Raises DataError where these clips
    can't be divided that way; each message says why and what else to choose.
    """
    return _KINDS[data.split](scenarios, data, root)


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
    return selected


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


def _random(scenarios: Scenarios, data: DataConfig, root: Path) -> Sides:
    return split_clip_ids(scenarios, data.eval_ratio, data.split_seed)


def _stratified(scenarios: Scenarios, data: DataConfig, root: Path) -> Sides:
    return hold_out(scenarios, {clip_id: clip_id for clip_id in scenarios}, data)


def _by_scene(scenarios: Scenarios, data: DataConfig, root: Path) -> Sides:
    return hold_out(scenarios, scene_of(scenarios), data)


def _by_speaker(scenarios: Scenarios, data: DataConfig, root: Path) -> Sides:
    # MUStARD's PERSON is several extras; kept together, they can't be on both sides.
    return hold_out(scenarios, {key: clip["speaker"] for key, clip in scenarios.items()}, data)


def _by_show(scenarios: Scenarios, data: DataConfig, root: Path) -> Sides:
    shows, tested = {clip["show"] for clip in scenarios.values()}, set(data.test_shows)
    found, problem = list(data.test_shows), ""
    if unknown := sorted(tested - shows):
        found, problem = unknown, "is no show of this corpus"
    elif tested == shows:
        problem = "are all shows of this corpus, so that nothing is left to train on"
    if problem:
        remedy = f"Name some of {sorted(shows)}, or choose another data.split."
        raise refusal("data.test_shows", found, problem, remedy)
    held_out = {clip_id for clip_id, clip in scenarios.items() if clip["show"] in tested}
    return set(scenarios) - held_out, held_out


def _official(scenarios: Scenarios, data: DataConfig, root: Path) -> Sides:
    fold = read_folds(root, scenarios)[data.fold]
    return set(fold.train), set(fold.test)


_KINDS: dict[str, Callable[[Scenarios, DataConfig, Path], Sides]] = {
    "random": _random,
    "stratified": _stratified,
    "scene": _by_scene,
    "speaker": _by_speaker,
    "show": _by_show,
    "official": _official,
}
