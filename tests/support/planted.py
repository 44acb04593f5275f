"""A judged run without a model: the answers of each pass are given by a function of the clip."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support.corpus import write_corpus

from subtext import strict_json
from subtext.answer import SARCASTIC, SINCERE, format_answer
from subtext.data.scenarios import load_run_scenarios
from subtext.data.scenes import scene_of
from subtext.evaluation.metrics import summarise
from subtext.evaluation.records import score_completion
from subtext.prepare import prepare_run
from subtext.run_dir import RunDir

Answerer = Callable[[str, Mapping[str, Any]], str]


def malformed(clip_id: str, clip: Mapping[str, Any]) -> str:
    """What a base model that knows nothing of the form says."""
    return "I think so."


def answer(label: bool, reasoning: str, confidence: float = 0.8) -> str:
    """A well-formed answer: sarcastic where `label` is true."""
    return format_answer(reasoning, SARCASTIC if label else SINCERE, confidence)


def planted_run(
    home: Path,
    passes: Mapping[str, Answerer],
    n_clips: int = 160,
    change: Callable[[dict[str, Any]], None] = lambda clip: None,
    **evaluation: Any,
) -> RunDir:
    """Return a run on a generated corpus in `home`, half of it held out, judged by `passes`.

    No two clips share a line, so that each is a scene of its own. `change` alters every clip of
    the corpus in place before the run is prepared, and `evaluation` sets knobs of that section.
    """
    root = write_corpus(home / "corpus", n_clips=n_clips, seed=1)
    clips = json.loads((root / "sarcasm_data.json").read_text())
    for clip_id, clip in clips.items():
        clip["utterance"] += f" Take {clip_id}."
        clip["context"] = [f"{line} Take {clip_id}." for line in clip["context"]]
        change(clip)
    (root / "sarcasm_data.json").write_text(json.dumps(clips))
    knobs = {"ablations": [], "n_train_clips": 0, "judge_checkpoints": False, "n_eval_clips": 0}
    overrides = {
        "data": {"root": str(root), "split": "scene", "eval_ratio": 0.5, "require_prosody": True},
        "training": {"runs_dir": str(home / "runs")},
        "evaluation": knobs | evaluation,
    }
    run = prepare_run("demo", overrides, default_run_id="planted")
    write_answers(run, passes)
    return run


def write_answers(run: RunDir, passes: Mapping[str, Answerer]) -> None:
    """Write held_out_eval.json as if `passes` had judged the run's clips."""
    scenarios = load_run_scenarios(run)
    scenes, judged = scene_of(scenarios), run.require(run.split)["judged"]
    figures = {}
    for name, said in passes.items():
        records = []
        for clip_id in judged:
            text = said(clip_id, scenarios[clip_id])
            records.append(score_completion(clip_id, scenarios[clip_id], text, True, len(text)))
        figures[name] = summarise(records, scenes)
    strict_json.write(run.held_out_eval, {**figures["trained"], "passes": figures})
