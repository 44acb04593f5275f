"""Judge the held-out clips of a run, with its own policies and with the champion, and assess."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from subtext.run_dir import RunDir
from tasks.artifacts import show_evaluation, show_folds
from tasks.library_log import library_log
from tasks.watching import watched


@task(name="judge", cache_policy=NO_CACHE)
def judge(run_path: str) -> None:
    """Judge with every policy of the run, and as many altered prompts as its profile asks for."""
    from subtext.evaluation.held_out import judge_held_out

    run = RunDir(Path(run_path))
    with watched(run.run_id) as watch:
        judge_held_out(run, watch)


# Retried for MLflow, which says who is champion; what was answered is not generated again.
@task(name="judge champion", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5)
def judge_champion(run_path: str) -> None:
    """Judge the same clips with the registered champion, where there is one."""
    from subtext import tracking

    run = RunDir(Path(run_path))
    with watched(run.run_id) as watch:
        tracking.judge_champion(run, watch)


@task(name="judge model", cache_policy=NO_CACHE)
def judge_model(run_path: str, model: str) -> None:
    """Judge the run's held-out clips with any adapter: a folder, or a version of the registry."""
    from subtext import tracking

    run = RunDir(Path(run_path))
    with watched(run.run_id) as watch:
        tracking.judge_model(run, model, watch)


@task(name="assess", cache_policy=NO_CACHE)
def assess(run_path: str) -> str:
    """Write metrics.json, the plots and report.html; return and show the verdict."""
    from subtext.evaluation.assess import assess as assess_run

    run = RunDir(Path(run_path))
    with library_log():
        evaluation = assess_run(run)
    show_evaluation(run)
    return str(evaluation["verdict"])


@task(name="pool folds", cache_policy=NO_CACHE)
def pool_folds(run_paths: list[str]) -> str:
    """Pool the five folds into one file and show it; return its path."""
    from subtext.evaluation.official_folds import write_folds

    path = write_folds([RunDir(Path(run_path)) for run_path in run_paths])
    show_folds(path)
    return str(path)
