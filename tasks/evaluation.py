"""Judge the held-out clips of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from subtext.run_dir import RunDir
from tasks.artifacts import show_results
from tasks.watching import watched


@task(name="judge", cache_policy=NO_CACHE)
def judge(run_path: str) -> dict[str, Any]:
    """Judge with every policy of the run; return and show what metrics.json holds."""
    from subtext.evaluation.held_out import judge_held_out

    run = RunDir(Path(run_path))
    with watched(run.run_id) as watch:
        metrics = judge_held_out(run, watch)
    show_results(run)
    return metrics
