"""The files of a judged run that no model made: an `example`, as `judge` and `assess` leave it."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from support.evaluation import DEMO, example

from subtext import strict_json
from subtext.data.scenes import scene_of
from subtext.evaluation.metrics import summarise
from subtext.profiles import resolve
from subtext.run_dir import RunDir

CLIPS = 40
LEAK_REPORT = {
    "split": "official",
    "n_held_out": 138,
    "held_out_majority": 0.536,
    "scenes": {"n_pairs_across": 12, "n_lines_across": 12, "examples": []},
    "speakers": {"n_both_sides": 16, "n_held_out": 17, "held_out_share_known": 0.99},
    "shows": {"n_both_sides": 4, "n_held_out": 4, "held_out_share_known": 1.0},
    "baselines": {
        "speaker": {"accuracy": 0.692, "accuracy_interval": [0.61, 0.76], "auroc": 0.77},
        "duration": {"accuracy": 0.5, "accuracy_interval": [0.42, 0.58], "auroc": None},
    },
}


def judged_run(folder: Path) -> RunDir:
    """Write what a judged run of the demo corpus holds, without adapter and plots, to `folder`."""
    run = RunDir(folder).create()
    config = resolve("demo", {"data": {"root": str(DEMO)}}).model_dump(mode="json")
    strict_json.write(run.config, {"profile": "demo", "config": config})
    evaluation, figures = evaluation_of(), _figures(CLIPS, champion=False)
    clip_ids = list(example(CLIPS).scenarios)
    split = {key: evaluation["split"][key] for key in ("kind", "corpus", "data_digest")}
    halves = {"train": clip_ids[CLIPS:], "held_out": clip_ids[:CLIPS], "judged": clip_ids[:CLIPS]}
    strict_json.write(run.split, split | halves)
    strict_json.write(run.held_out_eval, {**figures["trained"], "passes": figures})
    strict_json.write(run.metrics, evaluation)
    run.report.write_text("<!doctype html><title>report</title>")
    return run


def evaluation_of(n_clips: int = CLIPS, champion: bool = False) -> dict[str, Any]:
    """Return the metrics.json of an example. It may be changed."""
    return deepcopy(example(n_clips, champion=champion).evaluation)


def _figures(n_clips: int, champion: bool) -> dict[str, dict[str, Any]]:
    made = example(n_clips, champion=champion)
    scenes = scene_of(made.scenarios)
    return {name: summarise(records, scenes) for name, records in made.records.items()}
