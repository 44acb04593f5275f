"""Flow `subtext-evaluate`: judge a model, finish a run, or repeat MUStARD's official folds.

Without a server: `python -m flows.evaluate_flow --model models:/subtext@challenger --profile demo`.
"""

from __future__ import annotations

from typing import Literal

from prefect import flow

from subtext.config import Overrides
from subtext.data.folds import N_FOLDS
from subtext.profiles import Profile
from tasks.data import prepare_evaluation, prepare_fold
from tasks.evaluation import assess, judge, judge_champion, judge_model, pool_folds
from tasks.publishing import write_card
from tasks.reopening import reopen_run
from tasks.tracking import finish, log_folds, log_results, pass_gate, register, tracked
from tasks.training import train

Protocol = Literal["model", "run", "official-folds"]


@flow(name="subtext-evaluate")
def evaluate_flow(
    protocol: Protocol = "model",
    model: str = "models:/subtext@challenger",
    profile: Profile = Profile.cpu,
    overrides: Overrides = Overrides(),  # noqa: B008
) -> str:
    """Return the run directory of an evaluation, or the file in which five folds are pooled.

    `model`: that adapter (a folder, or a registered version) judges the held-out clips of `profile`
    and `overrides` that share no scene with its training. `run`: the trained run `model` is judged,
    registered and gated; `overrides` say where its data is. `official-folds`: five are trained.
    """
    if protocol == "official-folds":
        runs = [_fold(profile, overrides, fold) for fold in range(N_FOLDS)]
        pooled = pool_folds(runs)
        log_folds(runs, pooled)
        return pooled
    if protocol == "run":
        return _finished(reopen_run(model, overrides))
    run = prepare_evaluation(profile, overrides, model)
    with tracked(run):
        judge_model(run, model)
        assess(run)
        log_results(run)
        finish(run)
    return run


def _finished(run: str) -> str:
    with tracked(run):
        judge(run)
        judge_champion(run)
        assess(run)
        write_card(run)
        log_results(run)
        register(run)
        pass_gate(run)
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
