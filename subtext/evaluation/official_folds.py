"""MUStARD's speaker-dependent protocol: one policy a fold, every clip judged by the one that never
saw it, figures averaged over the five folds as in the paper, and pooled.

Pooled figures treat the out-of-fold answers as one sample. Their intervals are somewhat too narrow,
since the five policies share training clips. The paper's table stands beside them only where the
same 690 clips were judged: figures of different protocols are never mixed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from subtext import strict_json
from subtext.config import RunConfig
from subtext.data.folds import N_FOLDS
from subtext.data.scenarios import load_run_scenarios
from subtext.data.scenes import scene_of
from subtext.errors import ConfigError, EvaluationError, Problem
from subtext.evaluation.baselines import baseline_table
from subtext.evaluation.metrics import summarise, without_records
from subtext.evaluation.records import Records, right_by_clip
from subtext.evaluation.statistics import compare, judged_family, smallest_gain
from subtext.run_dir import RunDir, load_config

SCHEMA = "subtext.folds/1"
PROTOCOL = "official folds (speaker-dependent)"

_POLICIES = ("base", "trained")
_MEANS = ("accuracy", "precision_weighted", "recall_weighted", "f1_weighted")
_OURS = ("data.split", "data.fold", "evaluation.n_eval_clips")


def fold_overrides(overrides: Mapping[str, Mapping[str, Any]], fold: int) -> dict[str, Any]:
    """Return `overrides` for the run that holds out `fold` (0..4) and judges all of its clips.

    Raises ConfigError where they set what the protocol sets.
    """
    problems = [
        Problem(
            "configuration", knob, overrides[section][field],
            "is set by the protocol of the official folds", "Leave it out.",
        )
        for knob in _OURS
        for section, _, field in [knob.partition(".")]
        if overrides.get(section, {}).get(field) is not None
    ]  # fmt: skip
    if problems:
        raise ConfigError("Configuration refused", problems)
    sections = {name: dict(fields) for name, fields in overrides.items()}
    sections.setdefault("data", {}).update(split="official", fold=fold)
    sections.setdefault("evaluation", {}).update(n_eval_clips=0)
    if run_id := sections.get("training", {}).get("run_id"):
        sections["training"]["run_id"] = f"{run_id}-fold-{fold}"
    return sections


def write_folds(runs: Sequence[RunDir]) -> Path:
    """Pool five judged runs into `folds-<digest of their names>.json` beside them; return its path.

    The same runs give the same bytes. Raises what `pool_folds` raises.
    """
    pooled = pool_folds(runs)
    name = f"folds-{strict_json.digest(pooled['runs'])[:8]}.json"
    return strict_json.write(runs[0].path.parent / name, pooled)


def pool_folds(runs: Sequence[RunDir]) -> dict[str, Any]:
    """Return the result of five judged runs, one an official fold.

    `folds`: figures of every policy by fold; `mean`: their means over the folds, the paper's way;
    `pooled`: figures of all out-of-fold answers, `comparisons` of the trained policy with the base
    and each baseline on them; `paper`: the published table, or None with `paper_left_out` saying
    why. Raises EvaluationError for runs that are not one a fold of the same data and settings.
    """
    configs = [load_config(run) for run in runs]
    _check(runs, configs)
    clips = [load_run_scenarios(run) for run in runs]  # described by each fold's training clips
    scenes = scene_of(clips[0])
    judged = [run.require(run.held_out_eval)["passes"] for run in runs]
    splits = [run.require(run.split) for run in runs]
    tables = [
        baseline_table(scenarios, split["train"], split["judged"])
        for scenarios, split in zip(clips, splits, strict=True)
    ]
    records = {
        name: [record for passes in judged for record in passes[name]["results"]]
        for name in _POLICIES
    }
    n_clips = len(records["trained"])
    paper, left_out = _paper(splits[0].get("corpus", ""), n_clips)
    return {
        "schema": SCHEMA,
        "protocol": PROTOCOL,
        "n_clips": n_clips,
        "data_digest": splits[0]["data_digest"],
        "runs": [run.run_id for run in runs],
        "folds": [
            {"fold": config.data.fold, "run_id": run.run_id, "n": len(split["judged"]),
             "policies": {name: _figures(passes[name]) for name in _POLICIES}}
            for run, config, split, passes in zip(runs, configs, splits, judged, strict=True)
        ],
        "mean": {
            **{name: _mean([passes[name] for passes in judged]) for name in _POLICIES},
            **{name: _mean([table[name] for table, _ in tables]) for name in tables[0][0]},
        },
        "pooled": {
            name: without_records(summarise(found, scenes)) for name, found in records.items()
        },
        "comparisons": _comparisons(records, [correct for _, correct in tables], scenes),
        "smallest_gain": smallest_gain(n_clips),
        "paper": paper,
        "paper_left_out": left_out,
    }  # fmt: skip


def _comparisons(
    records: Mapping[str, Records],
    baselines: Sequence[Mapping[str, Mapping[str, bool]]],
    scenes: Mapping[str, str],
) -> list[dict[str, Any]]:
    """The trained policies against the base, then each baseline, on all out-of-fold answers.

    `baselines`: of each fold name -> clip id -> right.
    """
    trained = right_by_clip(records["trained"])
    planned = [("base", "policy", right_by_clip(records["base"]))]
    for name in baselines[0]:
        pooled = {clip_id: right for fold in baselines for clip_id, right in fold[name].items()}
        planned.append((name, "baseline", pooled))
    return judged_family(
        [
            {"name": name, "kind": kind, **compare(trained, theirs, scenes)}
            for name, kind, theirs in planned
        ]
    )


def _check(runs: Sequence[RunDir], configs: Sequence[RunConfig]) -> None:
    folds = sorted(config.data.fold for config in configs)
    if folds != list(range(N_FOLDS)):
        problem = Problem(
            "official folds", "runs", [run.run_id for run in runs],
            f"hold out the folds {folds}, not each of 0 to {N_FOLDS - 1} once",
            "Give the five runs of one evaluation.",
        )  # fmt: skip
        raise EvaluationError(str(problem))
    for run, config in zip(runs, configs, strict=True):
        if _same_for_all(config) != _same_for_all(configs[0]):
            problem = Problem(
                "official folds", "config.json", run.run_id,
                f"has other settings than {runs[0].run_id}", "Repeat the whole evaluation.",
            )  # fmt: skip
            raise EvaluationError(str(problem))
    if len({run.require(run.split)["data_digest"] for run in runs}) > 1:
        problem = Problem(
            "official folds", "data_digest", [run.run_id for run in runs],
            "differs between the runs: the clips changed", "Repeat the whole evaluation.",
        )  # fmt: skip
        raise EvaluationError(str(problem))


def _same_for_all(config: RunConfig) -> dict[str, Any]:
    settings = config.model_dump(mode="json")
    del settings["data"]["fold"], settings["training"]["run_id"]
    return settings


def _figures(figures: Mapping[str, Any]) -> dict[str, float]:
    return {name: figures[name] for name in _MEANS if name in figures}


def _mean(folds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {
        name: sum(figures[name] for figures in folds) / len(folds)
        for name in _MEANS
        if all(name in figures for figures in folds)
    }


def _paper(corpus: str, n_clips: int) -> tuple[dict[str, Any] | None, str | None]:
    text = resources.files(__package__).joinpath("published.toml").read_text("utf-8")
    published = tomllib.loads(text)
    protocol = published["official_folds"]
    if corpus != "mustard":
        return None, "The paper's figures are of MUStARD; these clips are another corpus."
    if n_clips != protocol["n_clips"]:
        return None, (
            f"The paper judges {protocol['n_clips']} clips, here {n_clips} were judged "
            "(data.require_prosody leaves clips out)."
        )
    return {"source": published["source"], **protocol}, None
