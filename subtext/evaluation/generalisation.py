"""Where a policy is right: clips it was trained on, each speaker, each show, within a speaker."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Literal

from subtext.answer import SARCASTIC
from subtext.data.clips import Scenarios
from subtext.evaluation.records import Records
from subtext.evaluation.statistics import Resamples, interval, wilson_interval


def train_sample(
    scenarios: Scenarios, train_ids: Sequence[str], n_clips: int, seed: int
) -> list[str]:
    """Return `n_clips` training clips, sorted, all where there are fewer, with labels in their
    proportion. Drawn anew for another seed; the order of `train_ids` does not matter."""
    ids = sorted(train_ids)
    random.Random(seed).shuffle(ids)
    by_label = {
        label: [clip_id for clip_id in ids if bool(scenarios[clip_id]["sarcasm"]) == label]
        for label in (True, False)
    }
    n_drawn = min(n_clips, len(ids))
    n_sarcastic = round(n_drawn * len(by_label[True]) / len(ids))
    return sorted([*by_label[True][:n_sarcastic], *by_label[False][: n_drawn - n_sarcastic]])


def train_against_held_out(
    train: Records, held_out: Records, scenes: Mapping[str, str]
) -> dict[str, Any]:
    """Return `n`, `accuracy`, `accuracy_interval` (Wilson) on the training clips, and by how much
    that exceeds held-out accuracy: `difference` with its 95 % `interval`.

    The two are different clips, so each is resampled by itself, by `scenes` (clip id -> scene).
    `interval` is None where one of them is of a single scene.
    """
    right, held_out_right = _right(train), _right(held_out)
    resampled = [
        Resamples.of([scenes[record["clip_id"]] for record in records], seed=seed).mean(values)
        for seed, (records, values) in enumerate(((train, right), (held_out, held_out_right)))
    ]
    n_scenes = min(
        len({scenes[record["clip_id"]] for record in records}) for records in (train, held_out)
    )
    accuracy = sum(right) / len(right)
    return {
        "n": len(train),
        "accuracy": accuracy,
        "accuracy_interval": list(wilson_interval(sum(right), len(right))),
        "difference": accuracy - sum(held_out_right) / len(held_out_right),
        "interval": None if n_scenes < 2 else interval(resampled[0] - resampled[1], n_scenes),
    }


def by_group(
    records: Records, scenarios: Scenarios, field: Literal["speaker", "show"]
) -> list[dict[str, Any]]:
    """Return `name`, `n`, `n_sarcastic`, `accuracy` and its 95 % Wilson `interval` of each speaker
    or show, the one with most clips first."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for record in records:
        groups[scenarios[record["clip_id"]][field]].append(record)
    rows = [
        {
            "name": name,
            "n": len(group),
            "n_sarcastic": sum(record["gold"] == SARCASTIC for record in group),
            "accuracy": sum(_right(group)) / len(group),
            "interval": list(wilson_interval(sum(_right(group)), len(group))),
        }
        for name, group in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row["n"], row["name"]))


def within_speaker(records: Records, scenarios: Scenarios) -> dict[str, Any] | None:
    """Return `concordance` and `n_pairs`: of the pairs of clips by one speaker, one sarcastic and
    one sincere, the share in which the sarcastic one has the higher p_sarcastic, a tie counting
    half. Knowing who speaks is worth 0.5. None where there is no such pair."""
    groups: dict[str, dict[bool, list[float]]] = defaultdict(lambda: {True: [], False: []})
    for record in records:
        speaker = scenarios[record["clip_id"]]["speaker"]
        groups[speaker][record["gold"] == SARCASTIC].append(record["p_sarcastic"])
    scores = [
        (sarcastic > sincere) + (sarcastic == sincere) / 2
        for group in groups.values()
        for sarcastic, sincere in product(group[True], group[False])
    ]
    return {"concordance": sum(scores) / len(scores), "n_pairs": len(scores)} if scores else None


def _right(records: Records) -> list[int]:
    return [int(record["correct"]) for record in records]
