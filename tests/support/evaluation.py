"""A finished evaluation that no model made: clips of the demo corpus, answers drawn by a generator.

Figures, comparisons and wording are the project's own, so tables, plots and clips agree as in a
run. The same arguments give the same example.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from subtext.answer import SARCASTIC, SINCERE, format_answer
from subtext.data.pivot.file import pivot_strata
from subtext.data.scenarios import load_scenarios
from subtext.data.scenes import scene_of
from subtext.evaluation.ablations import ablation_table
from subtext.evaluation.baselines import baseline_table
from subtext.evaluation.generalisation import by_group, train_against_held_out, within_speaker
from subtext.evaluation.metrics import summarise
from subtext.evaluation.records import score_completion
from subtext.evaluation.statistics import compare, judged_family, smallest_gain, wilson_interval
from subtext.evaluation.verdict import verdict

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
RUN_ID = "demo-20260101-120000-abc123"
ABLATIONS = ("no_prosody", "shuffled_within_speaker", "mirrored_contour")
N_STEPS = 40
_MALFORMED = {"base": 0.4, "warm": 0.06}
_CUES = (
    "The words praise something that plainly went wrong, so they cannot be meant.",
    "The pitch falls early and stays flat, which sounds unimpressed.",
    "Nothing in the conversation before it speaks against taking the line at its word.",
    "The pause before the last word gives it weight, and the final rise asks for a reaction.",
    "Loudness and tempo stay in the middle of this speaker's range.",
)

Record = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """`evaluation` is what metrics.json holds; `records`: the judged clips of every pass;
    `strata`: clip id -> Pivot stratum; `log_history` as TRL logs it."""

    evaluation: dict[str, Any]
    records: dict[str, list[Record]]
    scenarios: dict[str, dict[str, Any]]
    strata: dict[str, str]
    log_history: list[dict[str, Any]]


@cache
def example(
    n_clips: int = 71, accuracy: float = 0.72, seed: int = 0, champion: bool = False
) -> Example:
    """Return the evaluation of `n_clips` (1 to 200) clips of the demo corpus, trained on the rest.

    `accuracy` is the chance of a right label that the trained policy is drawn with; with
    `champion` there is one to compare it with. Cached: copy before you change it.
    """
    scenarios = load_scenarios(DEMO)
    judged, train = list(scenarios)[:n_clips], list(scenarios)[n_clips:]
    targets = {"base": 0.5, "warm": 0.6, "trained": accuracy}
    targets |= dict.fromkeys([*ABLATIONS, *(["champion"] if champion else [])], accuracy - 0.06)
    records = {
        name: answers(scenarios, judged, target, _MALFORMED.get(name, 0.02), f"{seed} {name}")
        for name, target in targets.items()
    }
    records["train_sample"] = answers(scenarios, train[:40], accuracy, 0.02, f"{seed} train")
    strata = {clip_id: name for clip_id, name in pivot_strata(DEMO).items() if clip_id in judged}
    evaluation = _evaluation(scenarios, judged, train, records, strata)
    return Example(
        {**evaluation, "verdict": verdict(evaluation)}, records, scenarios, strata,
        log_history(seed),
    )  # fmt: skip


def answers(
    scenarios: Mapping[str, Mapping[str, Any]], clip_ids: Sequence[str], accuracy: float,
    malformed: float = 0.0, seed: str = "0",
) -> list[Record]:  # fmt: skip
    """Return records of answers that are right with chance `accuracy`, and cut short with chance
    `malformed`."""
    rng = random.Random(seed)
    records = []
    for clip_id in clip_ids:
        sarcastic = scenarios[clip_id]["sarcasm"] == (rng.random() < accuracy)
        text = format_answer(
            " ".join(rng.sample(_CUES, 3)), SARCASTIC if sarcastic else SINCERE,
            round(rng.uniform(0.55, 0.95), 2),
        )  # fmt: skip
        ended = rng.random() >= malformed
        text = text if ended else text[: text.index("<final>") + 20]
        records.append(
            score_completion(clip_id, scenarios[clip_id], text, ended, n_tokens=len(text) // 4)
        )
    return records


def log_history(seed: int = 0, n_steps: int = N_STEPS) -> list[dict[str, Any]]:
    """Return what TRL logs a step, of that what is drawn, and its last record."""
    rng = random.Random(seed)
    history: list[dict[str, Any]] = []
    for step in range(1, n_steps + 1):
        gain = 1 - 2.0 ** (-step / 12)
        history.append(
            {
                "step": step,
                "reward": 0.52 + 0.2 * gain + rng.gauss(0, 0.03),
                "accuracy": min(1.0, 0.55 + 0.2 * gain + rng.gauss(0, 0.07)),
                "frac_reward_zero_std": rng.choice([0.0, 0.25]),
                "completions/mean_length": 62 - 14 * gain + rng.gauss(0, 2),
                "completions/clipped_ratio": max(0.0, 0.1 - 0.1 * gain + rng.gauss(0, 0.02)),
            }
        )
    return [*history, {"step": n_steps, "train_runtime": 12.5, "train_loss": 0.01}]


def _evaluation(
    scenarios: Mapping[str, Any], judged: list[str], train: list[str],
    records: Mapping[str, list[Record]], strata: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    scenes = scene_of(scenarios)
    trained = records["trained"]
    baselines, baselines_right = baseline_table(scenarios, train, judged)
    planned = {"base": _right(records["base"])}
    if "champion" in records:
        planned["champion"] = _right(records["champion"])
    rows = [
        {
            "name": name,
            "kind": "policy" if name in records else "baseline",
            **compare(_right(trained), right, scenes),
        }
        for name, right in (planned | baselines_right).items()
    ]
    passes = {name: summarise(judged_clips, scenes) for name, judged_clips in records.items()}
    ablated = {name: records[name] for name in ABLATIONS}
    changed = dict.fromkeys(ABLATIONS, len(judged))
    return {
        "schema": "subtext.evaluation/1",
        "run_id": RUN_ID,
        "split": {
            "kind": "scene", "corpus": "demo", "data_digest": "ab" * 32, "n_train": len(train),
            "n_held_out": len(judged), "n_judged": len(judged),
            "n_scenes": len({scenes[clip_id] for clip_id in judged}),
        },
        "smallest_gain": smallest_gain(len(judged)),
        "passes": {
            name: {key: value for key, value in figures.items() if key != "results"}
            for name, figures in passes.items()
        },
        "baselines": baselines,
        "comparisons": judged_family(rows),
        "ablations": ablation_table(trained, ablated, changed, scenes, strata),
        "generalisation": {
            "train_sample": train_against_held_out(records["train_sample"], trained, scenes),
            "speakers": by_group(trained, scenarios, "speaker"),
            "shows": by_group(trained, scenarios, "show"),
            "within_speaker": within_speaker(trained, scenarios),
            "curve": [
                {
                    "step": step, "pass": name, "accuracy": figures["accuracy"],
                    "interval": figures["accuracy_interval"],
                    "strict_rate": figures["strict_rate"],
                    "mean_reward": figures["mean_reward"],
                }
                for step, name in ((0, "warm"), (N_STEPS, "trained"))
                for figures in [passes[name]]
            ],
        },
        "training": log_history()[-2],
        "training_form": {
            "n": 128, "strict_rate": 123 / 128, "interval": list(wilson_interval(123, 128)),
            "first_step": N_STEPS - 4, "last_step": N_STEPS,
        },
        "alarms": [],
        "passed_alarms": [],
        "warnings": [],
        "champion": {
            "version": 3, "uri": "models:/subtext/3", "n_shared": len(judged), "n_trained_on": 0,
            "reason": None,
        } if "champion" in records else None,
        "judged_model": None,
    }  # fmt: skip


def _right(records: Sequence[Record]) -> dict[str, bool]:
    return {record["clip_id"]: record["correct"] for record in records}
