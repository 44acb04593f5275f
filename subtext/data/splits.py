"""Who trains, who is held out, and in which order the held out are judged.

`divide` is the entry point: `data.split` says what a split keeps apart.

| kind | held out | size |
|---|---|---|
| random | the seed's: a shuffle of the ids, and only that | int(n * eval_ratio) |
| stratified | labels in the corpus's proportion | int(n * eval_ratio) |
| scene | whole scenes (`subtext.data.scenes`) | as near as the scenes allow, see `_hold_out` |
| speaker | whole speakers, by name | as near as the speakers allow, see `_hold_out` |
| show | every clip of `data.test_shows`: MUStARD's "speaker-independent" protocol | theirs |
| official | the test part of official fold `data.fold` | the fold's |

Every kind is a function of the clips and the seed; the order of the file counts only where
"official" reads positions in it. The seed's split and order are kept so that its results stay
comparable; that split separates scenes and knows nothing of speakers.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from subtext.config import DataConfig
from subtext.data.folds import read_folds
from subtext.data.scenes import scene_of
from subtext.errors import ConfigError, DataError, Problem

Scenarios = Mapping[str, Mapping[str, Any]]
Sides = tuple[set[str], set[str]]

_MOST_WEIGHED = 200  # groups of which every combination is considered; the rest is drawn
_LEFT_TO_WEIGH = 50  # clips of each label that they choose, where there are more groups than that

logger = logging.getLogger(__name__)


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
    train, held_out = _KINDS[data.split](scenarios, data, root)
    logger.info(
        "split %s: %d train (%d Pivot), %d held out (%d Pivot)", data.split,
        len(train), _n_pivot(train, scenarios), len(held_out), _n_pivot(held_out, scenarios),
    )  # fmt: skip
    return train, held_out


def check_labels(side: str, ids: Iterable[str], scenarios: Scenarios, split: str) -> None:
    """Raise DataError where all clips of a side ("training" or "held-out") have one label."""
    labels = [scenarios[clip_id]["sarcasm"] for clip_id in ids]
    if len(set(labels)) == 1:
        problem = Problem(
            f"{side} clips", "sarcasm", labels[0],
            f"is the label of all {len(labels)} (data.split={split}), so there is nothing to tell "
            "apart",
            "Have clips of both labels on both sides: more clips, or another data.split, "
            "data.split_seed, data.eval_ratio or data.test_shows.",
        )  # fmt: skip
        raise DataError("Nothing to tell apart", [problem])


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
    return _hold_out(scenarios, {clip_id: clip_id for clip_id in scenarios}, data)


def _by_scene(scenarios: Scenarios, data: DataConfig, root: Path) -> Sides:
    return _hold_out(scenarios, scene_of(scenarios), data)


def _by_speaker(scenarios: Scenarios, data: DataConfig, root: Path) -> Sides:
    # MUStARD's PERSON is several extras; kept together, they can't be on both sides.
    return _hold_out(scenarios, {key: clip["speaker"] for key, clip in scenarios.items()}, data)


def _by_show(scenarios: Scenarios, data: DataConfig, root: Path) -> Sides:
    shows, tested = {clip["show"] for clip in scenarios.values()}, set(data.test_shows)
    found, problem = list(data.test_shows), ""
    if unknown := sorted(tested - shows):
        found, problem = unknown, "is no show of this corpus"
    elif tested == shows:
        problem = "are all shows of this corpus, so that nothing is left to train on"
    if problem:
        remedy = f"Name some of {sorted(shows)}, or choose another data.split."
        raise _refusal("data.test_shows", found, problem, remedy)
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


class _Group:
    """Clips that stay together, and how many of them are (sarcastic, sincere)."""

    def __init__(self, ids: Sequence[str], scenarios: Scenarios) -> None:
        self.ids = ids
        self.n_sarcastic = sum(bool(scenarios[clip_id]["sarcasm"]) for clip_id in ids)
        self.n_sincere = len(ids) - self.n_sarcastic


def _hold_out(scenarios: Scenarios, group_of: Mapping[str, str], data: DataConfig) -> Sides:
    """Hold out whole groups so that size and labels are as near to what is wanted as they allow.

    Wanted are int(n * eval_ratio) clips with the corpus's share of sarcastic ones (rounded; at
    least one of each label on each side). Among all combinations of groups that leave both labels
    on both sides, one is taken whose counts of sarcastic and of sincere clips differ from the
    wanted in the fewest clips, summed; which of the equals follows from the seed. With more than
    `_MOST_WEIGHED` groups, all but `_LEFT_TO_WEIGH` of each label are drawn in the seed's order
    first, and all combinations of the next groups are weighed. Raises DataError where the size of
    the smaller side misses the wanted by more than half of it.
    """
    members: dict[str, list[str]] = defaultdict(list)
    for clip_id in sorted(scenarios):
        members[group_of[clip_id]].append(clip_id)
    groups = [_Group(ids, scenarios) for _, ids in sorted(members.items())]
    everything = _Group(sorted(scenarios), scenarios)
    if min(everything.n_sarcastic, everything.n_sincere) == 0:
        check_labels("all", scenarios, scenarios, data.split)
    if len(groups) == 1:
        problem = f"can't divide this corpus: all {len(scenarios)} clips are one {data.split}"
        raise _refusal("data.split", data.split, problem, "Choose another data.split.")
    wanted = _wanted(everything, data)
    # The smaller side is put together; what drawing leaves over is then enough to choose from.
    swapped = 2 * sum(wanted) > len(scenarios)
    if swapped:
        wanted = everything.n_sarcastic - wanted[0], everything.n_sincere - wanted[1]
    random.Random(data.split_seed).shuffle(groups)
    drawn, weighed = _draw(groups, wanted) if len(groups) > _MOST_WEIGHED else ([], groups)
    chosen = _weigh(weighed, drawn, wanted, everything)
    side = {clip_id for group in chosen for clip_id in group.ids}
    if not side or abs(len(side) - sum(wanted)) > sum(wanted) / 2:
        largest = max(len(group.ids) for group in groups)
        raise _refusal(
            "data.eval_ratio", data.eval_ratio,
            f"can't be met by whole groups (data.split={data.split}) with both labels on both "
            f"sides: of {len(scenarios)} clips {sum(wanted)} are wanted on the smaller side, the "
            f"nearest is {len(side) or 'none'}; the largest group holds {largest}",
            "Choose another data.eval_ratio or data.split, or add clips.",
        )  # fmt: skip
    other = set(scenarios) - side
    return (side, other) if swapped else (other, side)


def _wanted(everything: _Group, data: DataConfig) -> tuple[int, int]:
    """How many sarcastic and how many sincere clips are to be held out."""
    n = len(everything.ids)
    size = int(n * data.eval_ratio)
    if size < 2 or n - size < 2:
        raise _refusal(
            "data.eval_ratio", data.eval_ratio,
            f"leaves {min(size, n - size)} of {n} clips on one side, too few for two labels",
            "Add clips, or change data.eval_ratio.",
        )  # fmt: skip
    sarcastic = (2 * size * everything.n_sarcastic + n) // (2 * n)  # rounded, halves up
    lowest = max(1, size - everything.n_sincere + 1)
    highest = min(size - 1, everything.n_sarcastic - 1)
    sarcastic = max(lowest, min(highest, sarcastic))
    return sarcastic, size - sarcastic


def _draw(groups: Sequence[_Group], wanted: tuple[int, int]) -> tuple[list[_Group], list[_Group]]:
    """Take groups in order while they fit; return them and those to be weighed after them."""
    drawn: list[_Group] = []
    passed: list[_Group] = []
    limit, taken = [max(0, count - _LEFT_TO_WEIGH) for count in wanted], [0, 0]
    for group in groups:
        after = [taken[0] + group.n_sarcastic, taken[1] + group.n_sincere]
        if after[0] <= limit[0] and after[1] <= limit[1]:
            drawn.append(group)
            taken = after
        else:
            passed.append(group)
    # As many of each kind: where one label is rare, the next groups alone might lack it.
    kinds: dict[tuple[bool, bool], list[_Group]] = defaultdict(list)
    for group in passed:
        kinds[group.n_sarcastic > 0, group.n_sincere > 0].append(group)
    n_each = _MOST_WEIGHED // len(kinds)
    return drawn, [group for kind in kinds.values() for group in kind[:n_each]]


def _weigh(
    groups: Sequence[_Group], drawn: Sequence[_Group], wanted: tuple[int, int], everything: _Group
) -> list[_Group]:
    """Return `drawn` and the groups that bring it nearest to `wanted`; nothing if none will do.

    A subset-sum over pairs (sarcastic, sincere). The pairs that the first i groups can add up to
    are the bits of one integer, pair (a, b) at bit a * stride + b; b can't reach the stride, since
    no clip counts twice. The first groups that reach the wanted pair itself are enough.
    """
    stride = everything.n_sincere + 1
    before = (sum(g.n_sarcastic for g in drawn), sum(g.n_sincere for g in drawn))
    exact = (wanted[0] - before[0]) * stride + wanted[1] - before[1]
    steps = [group.n_sarcastic * stride + group.n_sincere for group in groups]
    reachable = [1]
    for step in steps:
        if reachable[-1] >> exact & 1:
            break
        reachable.append(reachable[-1] | reachable[-1] << step)

    def distance(code: int) -> tuple[int, int] | None:
        a, b = code // stride + before[0], code % stride + before[1]
        both_sides = 0 < a < everything.n_sarcastic and 0 < b < everything.n_sincere
        off = a - wanted[0], b - wanted[1]
        return (abs(off[0]) + abs(off[1]), abs(sum(off))) if both_sides else None

    rated = [(off, code) for code in _bits(reachable[-1]) if (off := distance(code)) is not None]
    if not rated:
        return []
    code, chosen = min(rated)[1], list(drawn)
    for index in range(len(reachable) - 2, -1, -1):
        if not reachable[index] >> code & 1:
            chosen.append(groups[index])
            code -= steps[index]
    return chosen


def _bits(number: int) -> Iterator[int]:
    """The positions of the ones in `number`."""
    return (index for index, bit in enumerate(reversed(f"{number:b}")) if bit == "1")


def _refusal(field: str, value: object, problem: str, remedy: str) -> DataError:
    return DataError("Split refused", [Problem("split", field, value, problem, remedy)])


def _n_pivot(ids: set[str], scenarios: Scenarios) -> int:
    return sum(1 for clip_id in ids if scenarios[clip_id].get("is_pivot"))
