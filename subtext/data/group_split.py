"""Holding out whole groups of clips: scenes, speakers, or single clips.

Nothing of a group is on both sides, and size and labels come as near to what is wanted as the
groups allow.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from subtext.config import DataConfig
from subtext.data.clips import Scenarios
from subtext.errors import DataError, Problem

Sides = tuple[set[str], set[str]]

_MOST_WEIGHED = 200  # groups of which every combination is considered; the rest is drawn
_LEFT_TO_WEIGH = 50  # clips of each label that they choose, where there are more groups than that


def hold_out(scenarios: Scenarios, group_of: Mapping[str, str], data: DataConfig) -> Sides:
    """Return (training ids, held-out ids); `group_of` names the group of each clip.

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
        raise refusal("data.split", data.split, problem, "Choose another data.split.")
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
        raise refusal(
            "data.eval_ratio", data.eval_ratio,
            f"can't be met by whole groups (data.split={data.split}) with both labels on both "
            f"sides: of {len(scenarios)} clips {sum(wanted)} are wanted on the smaller side, the "
            f"nearest is {len(side) or 'none'}; the largest group holds {largest}",
            "Choose another data.eval_ratio or data.split, or add clips.",
        )  # fmt: skip
    other = set(scenarios) - side
    return (side, other) if swapped else (other, side)


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


def refusal(field: str, value: object, problem: str, remedy: str) -> DataError:
    """The error for clips that can't be divided as the configuration says."""
    return DataError("Split refused", [Problem("split", field, value, problem, remedy)])


class _Group:
    """Clips that stay together, and how many of them are (sarcastic, sincere)."""

    def __init__(self, ids: Sequence[str], scenarios: Scenarios) -> None:
        self.ids = ids
        self.n_sarcastic = sum(bool(scenarios[clip_id]["sarcasm"]) for clip_id in ids)
        self.n_sincere = len(ids) - self.n_sarcastic


def _wanted(everything: _Group, data: DataConfig) -> tuple[int, int]:
    """How many sarcastic and how many sincere clips are to be held out."""
    n = len(everything.ids)
    size = int(n * data.eval_ratio)
    if size < 2 or n - size < 2:
        raise refusal(
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
