"""Two runs on the clips that both judged: who is right more often, and what that says."""

from __future__ import annotations

from typing import Any

from subtext.data.scenarios import load_run_scenarios
from subtext.data.scenes import scene_of
from subtext.errors import EvaluationError, Problem
from subtext.evaluation.records import right_by_clip
from subtext.evaluation.statistics import compare, judged_family, smallest_gain
from subtext.run_dir import RunDir

_COMPARED = ("base", "warm", "trained")


def compare_runs(one: RunDir, other: RunDir) -> dict[str, Any]:
    """Return how each pass that both runs have compares: `one` minus `other`.

    `n_shared` clips were judged by both; no run judges a clip that it is known to have learnt.
    `n_left_out` were judged by one of them alone. `rows` hold `name` and what `compare` gives, with
    Holm's p over them. `unknown_training` names the runs whose policy may know these clips, since
    nobody knows what it was trained on. Raises DataError for a run that was not judged,
    EvaluationError where the data differ or no clip is shared.
    """
    splits = [run.require(run.split) for run in (one, other)]
    if splits[0]["data_digest"] != splits[1]["data_digest"]:
        raise _refused(one, other, "data_digest", "judged different data")
    passes = [run.require(run.held_out_eval)["passes"] for run in (one, other)]
    judged = [{record["clip_id"] for record in each["trained"]["results"]} for each in passes]
    shared = judged[0] & judged[1]
    if not shared:
        raise _refused(one, other, "judged", "share no judged clip")
    scenes = scene_of(load_run_scenarios(one))
    rows = []
    for name in _COMPARED:
        if all(name in each for each in passes):
            ours, theirs = (
                right_by_clip([r for r in each[name]["results"] if r["clip_id"] in shared])
                for each in passes
            )
            rows.append({"name": name, **compare(ours, theirs, scenes)})
    return {
        "runs": [one.run_id, other.run_id],
        "n_shared": len(shared),
        "n_left_out": len(judged[0] ^ judged[1]),
        "unknown_training": [run.run_id for run in (one, other) if _is_training_unknown(run)],
        "smallest_gain": smallest_gain(len(shared)),
        "rows": judged_family(rows),
    }


def _is_training_unknown(run: RunDir) -> bool:
    judged = run.read(run.judged_model)
    return judged is not None and judged["n_trained_on"] is None


def _refused(one: RunDir, other: RunDir, field: str, what: str) -> EvaluationError:
    problem = Problem(
        "compare", field, [one.run_id, other.run_id], f"these runs {what}",
        "Compare runs with the same data and the same data.split.",
    )  # fmt: skip
    return EvaluationError(str(problem))
