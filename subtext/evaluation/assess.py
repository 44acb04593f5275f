"""Make the evaluation of a judged run: metrics.json, the plots and report.html.

Reads files, loads no model. Model card, summary, MLflow, Prefect and the gate take every figure
from metrics.json.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from subtext import strict_json
from subtext.config import Ablation, RunConfig
from subtext.data.folder import resolve_data_root
from subtext.data.pivot.file import pivot_strata
from subtext.data.scenarios import load_run_scenarios
from subtext.data.scenes import scene_of
from subtext.evaluation.ablations import ablation_table
from subtext.evaluation.alarms import training_alarms, training_form
from subtext.evaluation.baselines import baseline_table
from subtext.evaluation.behaviour import behaviour_warnings
from subtext.evaluation.generalisation import by_group, train_against_held_out, within_speaker
from subtext.evaluation.leaks import leak_warnings
from subtext.evaluation.metrics import summarise
from subtext.evaluation.passes import TRAIN_SAMPLE, altered_messages, checkpoint_step
from subtext.evaluation.report.clips import clip_rows
from subtext.evaluation.report.page import render_report, write_report
from subtext.evaluation.report.plots import draw_plots
from subtext.evaluation.statistics import compare, judged_family, smallest_gain
from subtext.evaluation.verdict import verdict
from subtext.prompts import build_messages
from subtext.run_dir import RunDir, load_config

logger = logging.getLogger(__name__)

SCHEMA = "subtext.evaluation/1"

Records = list[dict[str, Any]]
Scenarios = Mapping[str, Mapping[str, Any]]


def assess(run: RunDir) -> dict[str, Any]:
    """Write metrics.json, `plots/` and report.html of `run`; return what metrics.json holds.

    Raises DataError where the run was not judged, or its clips changed since.
    """
    config = load_config(run)
    scenarios = load_run_scenarios(run)
    passes = run.require(run.held_out_eval)["passes"]
    records = {name: summary["results"] for name, summary in passes.items()}
    champion = run.read(run.champion)
    if champion and champion["n_shared"]:
        records["champion"] = _champion_records(run)
        passes["champion"] = summarise(records["champion"], scene_of(scenarios))
    evaluation = _evaluation(run, config, scenarios, passes, records, champion)
    strict_json.write(run.metrics, evaluation)
    _write_pictures(run, config, scenarios, records, evaluation)
    logger.info("%s", evaluation["verdict"])
    return evaluation


def _evaluation(
    run: RunDir,
    config: RunConfig,
    scenarios: Scenarios,
    passes: Mapping[str, Mapping[str, Any]],
    records: Mapping[str, Records],
    champion: Mapping[str, Any] | None,
) -> dict[str, Any]:
    split = run.require(run.split)
    scenes = scene_of(scenarios)
    history = run.read(run.log_history, [])
    judged = [record["clip_id"] for record in records["trained"]]
    table, baselines_correct = baseline_table(scenarios, split["train"], judged)
    evaluation = {
        "schema": SCHEMA,
        "run_id": run.run_id,
        "split": _split(split, judged, scenes),
        "smallest_gain": smallest_gain(len(judged)),
        "passes": {name: _without_records(figures) for name, figures in passes.items()},
        "baselines": table,
        "comparisons": _comparisons(records, baselines_correct, scenes),
        "ablations": _ablations(config, scenarios, records, scenes, judged),
        "generalisation": _generalisation(run, config, scenarios, passes, records),
        "training": _last_step(history),
        "training_form": training_form(run.completions),
        "alarms": training_alarms(history, config.gate),
        "warnings": [
            *behaviour_warnings(records["trained"], scenarios, config.prompt),
            *_leaks(run),
        ],
        "champion": champion,
    }
    return {**evaluation, "verdict": verdict(evaluation)}


def _champion_records(run: RunDir) -> Records:
    lines = (run.judgements / "champion.jsonl").read_text("utf-8").splitlines()
    return [strict_json.loads(line) for line in lines]


def _without_records(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in figures.items() if key != "results"}


def _split(
    split: Mapping[str, Any], judged: Sequence[str], scenes: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "kind": split["kind"],
        "corpus": split.get("corpus", ""),
        "data_digest": split["data_digest"],
        "n_train": len(split["train"]),
        "n_held_out": len(split["held_out"]),
        "n_judged": len(judged),
        "n_scenes": len({scenes[clip_id] for clip_id in judged}),
    }


def _comparisons(
    records: Mapping[str, Records],
    baselines_correct: Mapping[str, Mapping[str, bool]],
    scenes: Mapping[str, str],
) -> list[dict[str, Any]]:
    """The planned list: the trained policy against the base first, then champion and baselines."""
    trained = _correct(records["trained"])
    planned: list[tuple[str, str, Mapping[str, bool]]] = [
        (name, "policy", _correct(records[name]))
        for name in ("base", "champion")
        if name in records
    ]
    planned += [(name, "baseline", right) for name, right in baselines_correct.items()]
    return judged_family(
        [
            {
                "name": name,
                "kind": kind,
                **compare({clip_id: trained[clip_id] for clip_id in theirs}, theirs, scenes),
            }
            for name, kind, theirs in planned
        ]
    )


def _correct(records: Records) -> dict[str, bool]:
    return {record["clip_id"]: record["correct"] for record in records}


def _ablations(
    config: RunConfig,
    scenarios: Scenarios,
    records: Mapping[str, Records],
    scenes: Mapping[str, str],
    judged: list[str],
) -> dict[str, Any]:
    named = {name: records[name] for name in config.evaluation.ablations if name in records}
    changed = {name: _n_changed(name, config, scenarios, judged) for name in named}
    strata = pivot_strata(resolve_data_root(config.data.root))
    return ablation_table(records["trained"], named, changed, scenes, strata)


def _n_changed(name: Ablation, config: RunConfig, scenarios: Scenarios, judged: list[str]) -> int:
    messages = altered_messages(name, config, scenarios, judged)
    return sum(
        messages(clip_id) != build_messages(clip_id, scenarios, config.prompt) for clip_id in judged
    )


def _generalisation(
    run: RunDir,
    config: RunConfig,
    scenarios: Scenarios,
    passes: Mapping[str, Mapping[str, Any]],
    records: Mapping[str, Records],
) -> dict[str, Any]:
    trained, scenes = records["trained"], scene_of(scenarios)
    seen = records.get(TRAIN_SAMPLE)
    return {
        "train_sample": seen and train_against_held_out(seen, trained, scenes),
        "speakers": by_group(trained, scenarios, "speaker"),
        "shows": by_group(trained, scenarios, "show"),
        "within_speaker": within_speaker(trained, scenarios),
        "curve": list(_curve(run, config, passes)),
    }


def _curve(
    run: RunDir, config: RunConfig, passes: Mapping[str, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Held-out figures over GRPO's steps: before the first, at judged checkpoints, at the end."""
    start = "warm" if "warm" in passes else "base"
    steps = {checkpoint_step(folder) for folder in run.checkpoints}
    named = {0: start, **{step: f"step_{step}" for step in steps}, config.grpo.max_steps: "trained"}
    for step, name in sorted(named.items()):
        if name in passes:
            figures = passes[name]
            yield {
                "step": step,
                "pass": name,
                "accuracy": figures["accuracy"],
                "interval": figures["accuracy_interval"],
                "well_formed_rate": figures["well_formed_rate"],
                "mean_reward": figures["mean_reward"],
            }


def _last_step(history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    steps = [record for record in history if "reward" in record]
    return dict(steps[-1]) if steps else {}


def _leaks(run: RunDir) -> Iterator[dict[str, str]]:
    report = run.read(run.leak_report)
    if report:
        for message in leak_warnings(report):
            yield {"name": "leak", "message": message}


def _write_pictures(
    run: RunDir,
    config: RunConfig,
    scenarios: Scenarios,
    records: Mapping[str, Records],
    evaluation: Mapping[str, Any],
) -> None:
    plots = draw_plots(evaluation, run.read(run.log_history, []))
    shutil.rmtree(run.plots, ignore_errors=True)
    for name, svg in plots.items():
        strict_json.write_text(run.plots / f"{name}.svg", svg)
    strata = pivot_strata(resolve_data_root(config.data.root))
    rows = clip_rows(records, scenarios, config.prompt, strata)
    write_report(run.report, render_report(evaluation, rows, plots))
