"""The order in which held-out clips are judged: every beginning of it is a fair sample."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from subtext.data.splits import judging_order

group_sizes = st.dictionaries(
    st.tuples(st.booleans(), st.sampled_from(["FRIENDS", "BBT", "GG", ""])),
    st.integers(1, 40),
    min_size=1,
)


def clips_of(groups: dict[tuple[bool, str], int]) -> dict[str, dict[str, Any]]:
    """Ids that sort by show, as MUStARD's do."""
    return {
        f"{show}_{sarcasm:d}_{index:02d}": {"sarcasm": sarcasm, "show": show}
        for (sarcasm, show), size in groups.items()
        for index in range(size)
    }


@given(groups=group_sizes)
def test_every_beginning_holds_groups_in_proportion(groups: dict[tuple[bool, str], int]) -> None:
    clips = clips_of(groups)
    order = judging_order(clips, clips, "stratified")
    assert sorted(order) == sorted(clips)
    seen: Counter[tuple[bool, str]] = Counter()
    for n, clip_id in enumerate(order, 1):
        seen[clips[clip_id]["sarcasm"], clips[clip_id]["show"]] += 1
        for group, size in groups.items():
            # Each group is at most half a clip off at any threshold of relative rank, so a
            # share differs from its due by at most half a clip a group and its own half.
            due = n * size / len(clips)
            assert abs(seen[group] - due) <= 0.5 + len(groups) / 2


def test_labels_alternate_where_shows_are_alike() -> None:
    clips = clips_of({(True, "A"): 30, (False, "A"): 30, (True, "B"): 10, (False, "B"): 10})
    order = judging_order(clips, clips, "stratified")
    for n in range(4, 81):
        first = [clips[clip_id] for clip_id in order[:n]]
        assert abs(sum(clip["sarcasm"] for clip in first) - n / 2) <= 1
        assert abs(sum(clip["show"] == "B" for clip in first) - n / 4) <= 1.5


@given(groups=group_sizes, seed=st.randoms(use_true_random=False))
def test_order_of_the_input_does_not_matter(groups: dict[tuple[bool, str], int], seed: Any) -> None:
    clips = clips_of(groups)
    shuffled = list(clips)
    seed.shuffle(shuffled)
    assert judging_order(shuffled, clips, "stratified") == judging_order(clips, clips, "stratified")
    assert judging_order(shuffled, clips, "seed") == sorted(clips)


def test_seed_order_is_of_text_not_of_numbers() -> None:
    clips = clips_of({(True, "2"): 1, (True, "10"): 1, (True, "1"): 2})
    assert judging_order(clips, clips, "seed") == ["10_1_00", "1_1_00", "1_1_01", "2_1_00"]
