"""The leak report: what crosses a split, and what trivial predictors score on its held-out clips.

A model's accuracy says little where the same scenes, speakers or shows are on both sides and their
names alone give the label away. Every figure is over all held-out clips, judged or not, and every
predictor is fitted on the training clips of the split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from subtext.data.clips import Scenarios
from subtext.data.scenes import pairs_across, shared_lines
from subtext.evaluation.baselines import BASELINES, in_metric_names, score
from subtext.figures import interval_text

SCHEMA = "subtext.leaks/1"
N_EXAMPLES = 10

# What a user can do about a predictor that works: a split that takes it away, or hiding it.
_HIDDEN = "no split takes it away: show it beside the model's accuracy, and keep it out of prompts"
_REMEDIES = {
    "speaker": "data.split=speaker holds out whole speakers",
    "show": "data.split=show holds out whole shows",
    "id order": "prompt.header=blind keeps ids from the model, data.split=scene keeps scenes whole",
    "id prefix": "prompt.header=blind keeps ids from the model",
}


def leak_report(scenarios: Scenarios, split: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `split` (its `kind`, `train` and `held_out` ids, `data_digest`) leaks.

    `scenes`: pairs of clips that share a line and lie on different sides, up to `N_EXAMPLES` of
    them, and the shared lines. `speakers` and `shows`: names on both sides, and the share of
    held-out clips whose name training knows. `baselines`: accuracy, 95 % Wilson interval and AUROC
    of each predictor; "duration" only where clips of both labels on both sides have a record.
    """
    train, held_out = list(split["train"]), list(split["held_out"])
    labels = [bool(scenarios[clip_id]["sarcasm"]) for clip_id in held_out]
    n_sarcastic = sum(labels)
    return {
        "schema": SCHEMA,
        "split": split["kind"],
        "data_digest": split["data_digest"],
        "n_train": len(train),
        "n_held_out": len(held_out),
        "held_out_majority": max(n_sarcastic, len(labels) - n_sarcastic) / len(labels),
        "scenes": _scenes(scenarios, train, held_out),
        "speakers": _overlap("speaker", scenarios, train, held_out),
        "shows": _overlap("show", scenarios, train, held_out),
        "baselines": {
            name: score(predict(scenarios, train, held_out), labels)
            for name, predict in BASELINES.items()
            if name != "duration" or _has_duration(scenarios, train, held_out)
        },
    }


def leak_warnings(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence, with what to do, for every leak that an accuracy must be read against.

    A predictor is named where its interval lies above 0.5 and above what calling every held-out
    clip by the commoner label would score.
    """
    scenes = report["scenes"]
    if n_pairs := scenes["n_pairs_across"]:
        one, other = scenes["examples"][0]["clips"]
        yield (
            f"{n_pairs} pairs of clips that share a line lie on both sides of the split, for "
            f"example {one} and {other}: data.split=scene keeps scenes whole"
        )
    for name, figures in report["baselines"].items():
        low, high = figures["accuracy_interval"]
        if name != "train majority" and low > max(0.5, report["held_out_majority"]):
            yield (
                f"{name} alone scores {figures['accuracy']:.3f} ({interval_text((low, high))}) on "
                f"the held-out clips: {_REMEDIES.get(name, _HIDDEN)}"
            )


def leak_metrics(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the report's figures under flat names such as `leak/speaker/accuracy`."""
    metrics = {
        "leak/scene_pairs_across": float(report["scenes"]["n_pairs_across"]),
        "leak/lines_across": float(report["scenes"]["n_lines_across"]),
        "leak/held_out_majority": float(report["held_out_majority"]),
    }
    for group in ("speakers", "shows"):
        metrics[f"leak/{group}_across"] = float(report[group]["n_both_sides"])
        metrics[f"leak/{group}_known_share"] = float(report[group]["held_out_share_known"])
    for name, figures in report["baselines"].items():
        key = in_metric_names(name)
        metrics[f"leak/{key}/accuracy"] = float(figures["accuracy"])
        if figures["auroc"] is not None:
            metrics[f"leak/{key}/auroc"] = float(figures["auroc"])
    return metrics


def _scenes(scenarios: Scenarios, train: Sequence[str], held_out: Sequence[str]) -> dict[str, Any]:
    inside = set(train) | set(held_out)
    tested = set(held_out)
    clips = {clip_id: clip for clip_id, clip in scenarios.items() if clip_id in inside}
    lines = {
        line: ids
        for line, ids in shared_lines(clips).items()
        if len({clip_id in tested for clip_id in ids}) > 1
    }
    across = pairs_across(clips, tested)
    examples = [
        {"clips": [held, other], "line": line} for held, other, line in islice(across, N_EXAMPLES)
    ]
    n_pairs = len(examples) + sum(1 for _ in across)  # counted, not kept: there may be millions
    return {"n_pairs_across": n_pairs, "n_lines_across": len(lines), "examples": examples}


def _overlap(
    field: str, scenarios: Scenarios, train: Sequence[str], held_out: Sequence[str]
) -> dict[str, Any]:
    known = {scenarios[clip_id][field] for clip_id in train}
    tested = [scenarios[clip_id][field] for clip_id in held_out]
    return {
        "n_train": len(known),
        "n_held_out": len(set(tested)),
        "n_both_sides": len(known & set(tested)),
        "held_out_share_known": sum(name in known for name in tested) / len(tested),
    }


def _has_duration(scenarios: Scenarios, train: Sequence[str], held_out: Sequence[str]) -> bool:
    return all(
        len({scenarios[key]["sarcasm"] for key in side if scenarios[key].get("prosody")}) > 1
        for side in (train, held_out)
    )
