"""Judge the held-out clips of a run with a model that another run trained."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from subtext import strict_json
from subtext.config import RunConfig
from subtext.data.clips import Scenarios
from subtext.data.scenarios import load_scenarios
from subtext.data.scenes import scene_of
from subtext.errors import (
    DataError,
    EvaluationError,
    MachineError,
    Problem,
    ProblemsError,
    TrackingError,
)
from subtext.evaluation.answer_cache import AnswerCache
from subtext.evaluation.judgements import CHAMPION, judged_records
from subtext.evaluation.metrics import summarise
from subtext.judge import Judge, OtherBaseWarning
from subtext.policy.threads import set_threads
from subtext.progress import Watcher, nobody
from subtext.run_dir import RunDir, load_config
from subtext.tracking.champion import current_champion
from subtext.tracking.models import load_judge, shown_name, training_split

logger = logging.getLogger(__name__)

BASE = "base"


def judge_model(run: RunDir, model: str, watcher: Watcher = nobody) -> None:
    """Judge the clips of `run` with `model` and with its base alone, and write held_out_eval.json.

    `model` is as in `load_judge`, and reads its own prompt and prosody words, whose thresholds
    become the run's. Clips that it was trained on, or of a scene with one, are left out; for an
    adapter outside of its run nobody knows which. Raises EvaluationError where no clip is left or
    judging stops, and what `load_judge` raises.
    """
    config = load_config(run)
    scenarios = load_scenarios(config.data.root)
    scenes = scene_of(scenarios)
    clip_ids, counts = _unseen_clips(run.require(run.split)["judged"], model, scenes)
    strict_json.write(run.judged_model, {"model": shown_name(model), **counts})
    set_threads(config.training.num_threads)
    judge = load_judge(model, _base_folder(config))
    strict_json.write(run.prosody_reference, judge.reference.record())
    passes = {
        name: summarise(_judged(run, name, judge, clip_ids, scenarios, watcher), scenes)
        for name in (BASE, "trained")
    }
    strict_json.write(run.held_out_eval, {**passes["trained"], "passes": passes})


def judge_champion(run: RunDir, watcher: Watcher = nobody) -> list[dict[str, Any]] | None:
    """Judge the clips of `run` with the current champion, in its own prompt, cast and reference.

    Only clips that the champion was not trained on count; clips of a scene that it saw stay, which
    can only help it. The records go to `judgements/champion.jsonl`, and `version`, `uri`,
    `n_shared` (clips judged), `n_trained_on` and `reason` (why it can't be compared, or null) to
    champion.json. Returns the records; None where there is no champion but this run's own version,
    or none that can be compared here. Raises TrackingError, EvaluationError.
    """
    for stale in (run.champion, run.records_of(CHAMPION)):
        stale.unlink(missing_ok=True)
    config = load_config(run)
    champion = current_champion(config.tracking.registered_model)
    own = run.read(run.tracking, {}).get("run_id")
    if champion is None or (own and champion["run_id"] == own):
        return None
    known = {"version": champion["version"], "uri": champion["uri"], "n_shared": 0}
    known |= {"n_trained_on": 0, "reason": None}
    records: list[dict[str, Any]] = []
    try:
        clip_ids = _untrained_clips(run, champion["uri"])
        known["n_trained_on"] = len(run.require(run.split)["judged"]) - len(clip_ids)
        if clip_ids:
            set_threads(config.training.num_threads)
            judge = _judge_on_its_own_base(champion["uri"], config)
            scenarios = load_scenarios(config.data.root)
            records = _judged(run, CHAMPION, judge, clip_ids, scenarios, watcher)
    except (DataError, MachineError, TrackingError, OtherBaseWarning) as error:
        known["reason"] = _one_sentence(error)
        logger.warning("champion version %s is not compared: %s", champion["version"], error)
    strict_json.write(run.champion, {**known, "n_shared": len(records)})
    return records or None


def _unseen_clips(
    judged: Sequence[str], model: str, scenes: Mapping[str, str]
) -> tuple[list[str], dict[str, int | None]]:
    """The clips of `judged` that share no scene with what `model` was trained on, and counts.

    Counts are None where nobody knows what it was trained on. Raises EvaluationError where no clip
    is left.
    """
    split = training_split(model)
    if split is None:
        logger.warning("%s: which clips it was trained on is not known", model)
        return list(judged), {"n_judged": len(judged), "n_trained_on": None, "n_same_scene": None}
    trained_on = set(split["train"])
    seen = {scenes[clip_id] for clip_id in trained_on & scenes.keys()}
    clip_ids = [clip_id for clip_id in judged if scenes[clip_id] not in seen]
    if not clip_ids:
        problem = Problem(
            "evaluation", "model", model,
            f"was trained on all {len(judged)} clips to be judged, or on others of their scenes",
            "Choose the data.split and data.split_seed that it was trained with.",
        )  # fmt: skip
        raise EvaluationError(str(problem))
    n_trained_on = len(trained_on.intersection(judged))
    n_same_scene = len(judged) - len(clip_ids) - n_trained_on
    logger.info(
        "%s: %d clips judged; left out: %d it was trained on, %d of a scene with one",
        model, len(clip_ids), n_trained_on, n_same_scene,
    )  # fmt: skip
    return clip_ids, {
        "n_judged": len(clip_ids),
        "n_trained_on": n_trained_on,
        "n_same_scene": n_same_scene,
    }


def _judge_on_its_own_base(uri: str, config: RunConfig) -> Judge:
    with warnings.catch_warnings():
        warnings.simplefilter("error", OtherBaseWarning)
        return load_judge(uri, _base_folder(config))


def _base_folder(config: RunConfig) -> str:
    return config.model.name if config.model.source == "path" else ""


def _one_sentence(error: Exception) -> str:
    said = str(error.problems[0] if isinstance(error, ProblemsError) else error)
    return said.rstrip(".")


def _untrained_clips(run: RunDir, uri: str) -> list[str]:
    """The judged clips of `run`, without those that the version at `uri` was trained on."""
    split, theirs = run.require(run.split), training_split(uri)
    assert theirs is not None  # a version's split is on record, or an error
    if theirs["data_digest"] != split["data_digest"]:
        problem = Problem(
            f"split.json of {uri}", "data_digest", theirs["data_digest"],
            f"is not {split['data_digest']}: it was trained on other clips",
            "Train it anew on these clips, or move the champion.",
        )  # fmt: skip
        raise DataError("Champion not comparable", [problem])
    trained_on = set(theirs["train"])
    return [clip_id for clip_id in split["judged"] if clip_id not in trained_on]


def _judged(
    run: RunDir,
    name: str,
    judge: Judge,
    clip_ids: list[str],
    scenarios: Scenarios,
    watcher: Watcher,
) -> list[dict[str, Any]]:
    """Judge `clip_ids`, as BASE without the adapter, and return the records."""
    clips = [{**scenarios[clip_id], "clip_id": clip_id} for clip_id in clip_ids]
    with AnswerCache(run.answers) as cache:
        batches = judge.answers(clips, cache=cache, adapted=name != BASE)
        return judged_records(run, name, clip_ids, scenarios, batches, watcher)
