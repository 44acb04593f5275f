"""Make the evaluation of a judged run: metrics.json, the plots and report.html.

Reads files, loads no model. Model card, summary, MLflow, Prefect and the gate take every figure
from metrics.json.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from subtext import strict_json
from subtext.config import Ablation, RunConfig
from subtext.data.clips import Scenarios
from subtext.data.folder import resolve_data_root
from subtext.data.pivot.file import pivot_strata
from subtext.data.scenarios import load_run_scenarios
from subtext.data.scenes import scene_of
from subtext.errors import DataError, Problem
from subtext.evaluation.ablations import ablation_table
from subtext.evaluation.alarms import training_alarms, training_form
from subtext.evaluation.baselines import baseline_table
from subtext.evaluation.behaviour import behaviour_warnings
from subtext.evaluation.generalisation import by_group, train_against_held_out, within_speaker
from subtext.evaluation.judgements import CHAMPION, champion_records
from subtext.evaluation.leaks import leak_warnings
from subtext.evaluation.metrics import summarise, without_records
from subtext.evaluation.passes import TRAIN_SAMPLE, altered_messages, full_messages
from subtext.evaluation.records import Records, right_by_clip
from subtext.evaluation.report.clips import clip_rows
from subtext.evaluation.report.page import render_report, write_report
from subtext.evaluation.report.plots import draw_plots
from subtext.evaluation.statistics import compare, judged_family, smallest_gain
from subtext.evaluation.verdict import verdict
from subtext.run_dir import RunDir, load_config

logger = logging.getLogger(__name__)

SCHEMA = "subtext.evaluation/1"


def assess(run: RunDir) -> dict[str, Any]:
    """Write metrics.json, `plots/` and report.html of `run`; return what metrics.json holds.

    Raises DataError where the run was not judged, or its clips changed since.
    """
    judged = _Judged.read(run)
    evaluation = _evaluation(judged)
    strict_json.write(run.metrics, evaluation)
    _write_pictures(judged, evaluation)
    logger.info("%s", evaluation["verdict"])
    return evaluation


@dataclass(frozen=True)
class _Judged:
    """A judged run: `passes` with their figures, `records` by pass, the champion's among them;
    `scenes` and Pivot `strata` by clip id; `clip_ids` of the trained pass; `history`: TRL's log."""

    run: RunDir
    config: RunConfig
    scenarios: Scenarios
    scenes: Mapping[str, str]
    strata: Mapping[str, str]
    passes: Mapping[str, Mapping[str, Any]]
    records: Mapping[str, Records]
    clip_ids: list[str]
    history: list[dict[str, Any]]

    @classmethod
    def read(cls, run: RunDir) -> _Judged:
        config, scenarios = load_config(run), load_run_scenarios(run)
        scenes = scene_of(scenarios)
        passes = run.require(run.held_out_eval)["passes"]
        if champions := champion_records(run):
            passes[CHAMPION] = summarise(champions, scenes)
        records = {name: summary["results"] for name, summary in passes.items()}
        _refuse_unknown(run, records, scenarios)
        return cls(
            run, config, scenarios, scenes, pivot_strata(resolve_data_root(config.data.root)),
            passes, records, [record["clip_id"] for record in records["trained"]],
            run.read(run.log_history, []),
        )  # fmt: skip


def _refuse_unknown(run: RunDir, records: Mapping[str, Records], scenarios: Scenarios) -> None:
    for name, judged in records.items():
        if unknown := sorted({record["clip_id"] for record in judged} - scenarios.keys()):
            problem = Problem(
                str(run.held_out_eval), f"passes.{name}", unknown[:5], "are no clips of the corpus",
                "Judge the run again.",
            )  # fmt: skip
            raise DataError("Run directory refused", [problem])


def _evaluation(judged: _Judged) -> dict[str, Any]:
    run, config, scenarios = judged.run, judged.config, judged.scenarios
    split = run.require(run.split)
    table, baselines_correct = baseline_table(scenarios, split["train"], judged.clip_ids)
    warnings = behaviour_warnings(judged.records["trained"], scenarios, config.prompt)
    alarms = training_alarms(judged.history, config.gate)
    evaluation = {
        "schema": SCHEMA,
        "run_id": run.run_id,
        "split": _split(split, judged),
        "smallest_gain": smallest_gain(len(judged.clip_ids)),
        "passes": {name: without_records(figures) for name, figures in judged.passes.items()},
        "baselines": table,
        "comparisons": _comparisons(judged, baselines_correct),
        "ablations": _ablations(judged),
        "generalisation": _generalisation(judged),
        "training": _last_step(judged.history),
        "training_form": training_form(run.completions),
        "alarms": alarms,
        "passed_alarms": _passed(run.read(run.alarms, []), alarms),
        "warnings": [*warnings, *_about_training(run)],
        "champion": run.read(run.champion),
        "judged_model": run.read(run.judged_model),
    }
    return {**evaluation, "verdict": verdict(evaluation)}


def _passed(seen: list[dict[str, Any]], alarms: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Alarms seen while training ran that do not hold over its last quarter."""
    still = {alarm["name"] for alarm in alarms}
    return [alarm for alarm in seen if alarm["name"] not in still]


def _split(split: Mapping[str, Any], judged: _Judged) -> dict[str, Any]:
    return {
        "kind": split["kind"],
        "corpus": split.get("corpus", ""),
        "data_digest": split["data_digest"],
        "n_train": len(split["train"]),
        "n_held_out": len(split["held_out"]),
        "n_judged": len(judged.clip_ids),
        "n_scenes": len({judged.scenes[clip_id] for clip_id in judged.clip_ids}),
    }


def _comparisons(
    judged: _Judged, baselines_correct: Mapping[str, Mapping[str, bool]]
) -> list[dict[str, Any]]:
    """The planned list: the trained policy against the base first, then champion and baselines."""
    right = {
        name: right_by_clip(judged.records[name])
        for name in ("trained", "base", CHAMPION)
        if name in judged.records
    }
    trained = right.pop("trained")
    planned = [(name, "policy", theirs) for name, theirs in right.items()]
    planned += [(name, "baseline", dict(theirs)) for name, theirs in baselines_correct.items()]
    return judged_family(
        [
            {
                "name": name,
                "kind": kind,
                **compare({clip_id: trained[clip_id] for clip_id in theirs}, theirs, judged.scenes),
            }
            for name, kind, theirs in planned
        ]
    )


def _ablations(judged: _Judged) -> dict[str, Any]:
    records = judged.records
    named = {name: records[name] for name in judged.config.evaluation.ablations if name in records}
    changed = {name: _n_changed(name, judged) for name in named}
    return ablation_table(records["trained"], named, changed, judged.scenes, judged.strata)


def _n_changed(name: Ablation, judged: _Judged) -> int:
    full = full_messages(judged.config, judged.scenarios)
    altered = altered_messages(name, judged.config, judged.scenarios, judged.clip_ids)
    return sum(altered(clip_id) != full(clip_id) for clip_id in judged.clip_ids)


def _generalisation(judged: _Judged) -> dict[str, Any]:
    trained, scenarios = judged.records["trained"], judged.scenarios
    seen = judged.records.get(TRAIN_SAMPLE)
    return {
        "train_sample": seen and train_against_held_out(seen, trained, judged.scenes),
        "speakers": by_group(trained, scenarios, "speaker"),
        "shows": by_group(trained, scenarios, "show"),
        "within_speaker": within_speaker(trained, scenarios),
        "curve": list(_curve(judged)),
    }


def _curve(judged: _Judged) -> Iterator[dict[str, Any]]:
    """Held-out figures over GRPO's steps: before the first, at judged checkpoints, at the end."""
    passes, last = judged.passes, judged.config.grpo.max_steps
    if judged.run.judged_model.exists():
        return  # trained elsewhere
    start = "warm" if "warm" in passes else "base"
    checkpoints = {step: f"step_{step}" for step in judged.run.checkpoints}
    named = {0: start, **checkpoints, last: "trained"}
    for step, name in sorted(named.items()):
        if name in passes:
            figures = passes[name]
            yield {
                "step": step,
                "pass": name,
                "accuracy": figures["accuracy"],
                "interval": figures["accuracy_interval"],
                "strict_rate": figures["strict_rate"],
                "mean_reward": figures["mean_reward"],
            }


def _last_step(history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    steps = [record for record in history if "reward" in record]
    return dict(steps[-1]) if steps else {}


def _about_training(run: RunDir) -> Iterator[dict[str, str]]:
    """What a policy may know of the judged clips: leaks of the split, in a run that trained it."""
    if judged := run.read(run.judged_model):
        if judged["n_trained_on"] is None:
            yield {
                "name": "unknown_training",
                "message": f"Which clips {judged['model']} was trained on is not known: it may "
                "have seen those judged here.",
            }
        return
    report = run.read(run.leak_report)
    if report:
        for message in leak_warnings(report):
            yield {"name": "leak", "message": message}


def _write_pictures(judged: _Judged, evaluation: Mapping[str, Any]) -> None:
    run = judged.run
    plots = draw_plots(evaluation, judged.history)
    shutil.rmtree(run.plots, ignore_errors=True)
    for name, svg in plots.items():
        strict_json.write_text(run.plots / f"{name}.svg", svg)
    rows = clip_rows(judged.records, judged.scenarios, judged.config.prompt, judged.strata)
    write_report(run.report, render_report(evaluation, rows, plots))
