"""Flow `subtext-evaluate`: judge a trained model on any split, or repeat MUStARD's official folds.

Deployed as `subtext-evaluate/model` and `subtext-evaluate/official-folds` (prefect.yaml). Without a
server: `python -m flows.evaluate_flow --model models:/subtext@challenger --profile demo`.
"""

from __future__ import annotations

from typing import Literal

from prefect import flow

from subtext.config import Overrides
from subtext.data.folds import N_FOLDS
from subtext.profiles import Profile
from tasks.data import prepare_evaluation, prepare_fold
from tasks.evaluation import assess, judge, judge_model, pool_folds
from tasks.tracking import finish, log_folds, log_results, tracked
from tasks.training import train

Protocol = Literal["model", "official-folds"]


@flow(name="subtext-evaluate")
def evaluate_flow(
    protocol: Protocol = "model",
    model: str = "models:/subtext@challenger",
    profile: Profile = Profile.cpu,
    overrides: Overrides = Overrides(),  # noqa: B008
) -> str:
    """Return the run directory of an evaluation, or the file in which five folds are pooled.

    `protocol=model`: the adapter `model` (a folder, or a version of the registry) judges the
    held-out clips of `profile` and `overrides`, but none that it was trained on or that shares a
    scene with one. `official-folds`: a policy is trained and judged on each of MUStARD's five
    folds.
    """
    if protocol == "official-folds":
        runs = [_fold(profile, overrides, fold) for fold in range(N_FOLDS)]
        pooled = pool_folds(runs)
        log_folds(runs, pooled)
        return pooled
    run = prepare_evaluation(profile, overrides, model)
    with tracked(run):
        judge_model(run, model)
        assess(run)
        log_results(run)
        finish(run)
    return run


def _fold(profile: Profile, overrides: Overrides, fold: int) -> str:
    run = prepare_fold(profile, overrides, fold)
    with tracked(run):
        train(run)
        judge(run)
        assess(run)
        log_results(run)
    return run


if __name__ == "__main__":
    from flows.command_line import evaluate_main

    raise SystemExit(evaluate_main(evaluate_flow))
