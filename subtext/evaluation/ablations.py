"""Altered prompts: what a policy still gets right when something is taken from it, or made false.

Every ablation judges the same clips with the same weights and the same decoding; one thing in the
prompt differs.

- `no_prosody`: "prosody: not available" in place of features and contour.
- `prosody_only`: a placeholder for the line and one for the context, names masked.
- `shuffled`, `shuffled_within_label`, `shuffled_within_speaker`: each clip has the prosody of
  another judged clip: of any, of one with the same label, of one by the same speaker.
- `mirrored_contour`: the pitch contour upside down, its slopes with it.
- `masked_speaker`: neutral names, which changes nothing where the prompt masks them already.

An honest policy that hears something loses about as much by shuffling as without prosody. Removing
the input of a policy that was trained with it also confuses it; what prosody is worth shows only
beside a policy trained without.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from subtext.config import Ablation, PromptConfig
from subtext.data.clips import Clip, Scenarios
from subtext.evaluation.records import Records, right_by_clip
from subtext.evaluation.statistics import compare, judged_family, wilson_interval

LABELS: dict[Ablation, str] = {
    "no_prosody": "no prosody",
    "prosody_only": "prosody only",
    "shuffled": "prosody shuffled",
    "shuffled_within_label": "shuffled within label",
    "shuffled_within_speaker": "shuffled within speaker",
    "mirrored_contour": "contour mirrored",
    "masked_speaker": "speaker masked",
}
"""What people call them."""

HIDDEN = "(not shown)"
_REST = "rest"
_MIRRORED_FIELDS = ("f0_slope_st_per_s", "f0_final_slope_st_per_s", "f0_final_move_st")
_MIRRORED_WORDS = {"low": "high", "high": "low"}
_SHUFFLED: dict[str, Callable[[Clip], object]] = {
    "shuffled": lambda clip: None,
    "shuffled_within_label": lambda clip: clip["sarcasm"],
    "shuffled_within_speaker": lambda clip: clip["speaker"],
}


def altered(
    name: Ablation,
    scenarios: Scenarios,
    clip_ids: Sequence[str],
    prompt: PromptConfig,
    seed: int = 0,
) -> tuple[dict[str, Clip], PromptConfig]:
    """Return the clips and the prompt that the ablation `name` judges `clip_ids` with.

    `scenarios` are described (`subtext.prosody.reference`) and stay as they are. Clips that are
    not judged stay too. Shuffles depend on `seed` and not on the order of clips.
    """
    judged = {clip_id: scenarios[clip_id] for clip_id in clip_ids}
    if name in _SHUFFLED:
        changed = _shuffled(judged, _SHUFFLED[name], seed)
    elif name == "no_prosody":
        changed = {clip_id: {**clip, "prosody": None} for clip_id, clip in judged.items()}
    elif name == "mirrored_contour":
        changed = {
            clip_id: {**clip, "prosody": clip["prosody"] and _mirrored(clip["prosody"])}
            for clip_id, clip in judged.items()
        }
    else:
        prompt = prompt.model_copy(update={"speaker": "masked"})
        changed = {}
        if name == "prosody_only":
            changed = {clip_id: _without_words(clip) for clip_id, clip in judged.items()}
    return {**scenarios, **changed}, prompt


def ablation_table(
    full: Records,
    ablated: Mapping[Ablation, Records],
    n_prompts_changed: Mapping[Ablation, int],
    scenes: Mapping[str, str],
    strata: Mapping[str, str],
) -> dict[str, dict[str, Any]]:
    """Return `compare_ablation` of each ablation in `ablated`, in its order, with `p_holm` over all
    of them and a `verdict`: "better" says that the full prompt is."""
    rows = [
        compare_ablation(name, full, records, n_prompts_changed[name], scenes, strata)
        for name, records in ablated.items()
    ]
    return dict(zip(ablated, judged_family(rows), strict=True))


def compare_ablation(
    name: Ablation,
    full: Records,
    ablated: Records,
    n_prompts_changed: int,
    scenes: Mapping[str, str],
    strata: Mapping[str, str],
) -> dict[str, Any]:
    """Compare the records of one policy under its full prompt and under the ablation `name`.

    Returns `label`, `n_prompts_changed`, what `_figures` gives for all clips, and the same under
    `strata` for each Pivot stratum (`strata`: clip id -> stratum) and the "rest", of those that
    have clips; no `strata` without a Pivot Set. Raises EvaluationError where the clips differ.
    """
    by_stratum: dict[str, set[str]] = defaultdict(set)
    for record in full if strata else ():
        by_stratum[strata.get(record["clip_id"], _REST)].add(record["clip_id"])
    return {
        "label": LABELS[name],
        "n_prompts_changed": n_prompts_changed,
        **_figures(full, ablated, scenes),
        "strata": {
            stratum: _figures(_of(full, ids), _of(ablated, ids), scenes)
            for stratum, ids in sorted(by_stratum.items())
        },
    }


def _figures(full: Records, ablated: Records, scenes: Mapping[str, str]) -> dict[str, Any]:
    """Accuracy of both, `difference` (full - ablated) with interval and McNemar's p; `flip_rate`,
    the share of clips whose label differs, malformed being a third; mean |change| of p(sarcastic);
    `strict_rate` of the ablated answers: where that breaks down, a loss is confusion."""
    compared = compare(right_by_clip(full), right_by_clip(ablated), scenes)
    before = {record["clip_id"]: record for record in full}
    pairs = [(before[record["clip_id"]], record) for record in ablated]
    n_flips = sum(one["predicted"] != other["predicted"] for one, other in pairs)
    changes = [abs(one["p_sarcastic"] - other["p_sarcastic"]) for one, other in pairs]
    return {
        "n": compared["n"],
        "accuracy": compared["accuracy_against"],
        "accuracy_full": compared["accuracy"],
        "difference": compared["difference"],
        "interval": compared["interval"],
        "n_only_full": compared["n_only_ours"],
        "n_only_ablated": compared["n_only_theirs"],
        "p_value": compared["p_value"],
        "flip_rate": n_flips / len(pairs),
        "flip_interval": list(wilson_interval(n_flips, len(pairs))),
        "mean_p_change": sum(changes) / len(pairs),
        "strict_rate": sum(record["strict"] for record in ablated) / len(pairs),
    }


def _of(records: Records, clip_ids: set[str]) -> Records:
    return [record for record in records if record["clip_id"] in clip_ids]


def _shuffled(judged: Scenarios, key: Callable[[Clip], object], seed: int) -> dict[str, Clip]:
    """Pass the records on in a circle within each group, so that none stays where it was, unless
    it is alone in its group."""
    rng = random.Random(seed)
    groups: dict[object, list[str]] = defaultdict(list)
    for clip_id in sorted(judged):
        if judged[clip_id]["prosody"]:
            groups[key(judged[clip_id])].append(clip_id)
    changed: dict[str, Clip] = {}
    for circle in groups.values():
        rng.shuffle(circle)
        for clip_id, donor in zip(circle, [*circle[1:], circle[0]], strict=True):
            changed[clip_id] = {**judged[clip_id], "prosody": judged[donor]["prosody"]}
    return changed


def _mirrored(record: Clip) -> dict[str, Any]:
    words = {
        name: _MIRRORED_WORDS.get(word, word) if name in _MIRRORED_FIELDS else word
        for name, word in record["words"].items()
    }
    slopes = {name: _negated(record[name]) for name in _MIRRORED_FIELDS if name in record}
    contour = [_negated(value) for value in record["contour_st"]]
    return {**record, **slopes, "contour_st": contour, "words": words}


def _negated(value: float | None) -> float | None:
    return None if value is None else 0.0 - value  # 0 stays 0, not -0


def _without_words(clip: Clip) -> dict[str, Any]:
    """The same form for every clip: how long the context is tells something too."""
    return {
        **clip,
        "utterance": HIDDEN,
        "context": [HIDDEN],
        "context_speakers": [clip["speaker"]],
    }
