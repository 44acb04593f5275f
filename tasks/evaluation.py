"""Judge the held-out clips of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from subtext.progress import Progress, TerminalBar
from subtext.run_dir import RunDir
from tasks.artifacts import PrefectProgress, show_results
from tasks.library_log import library_log


@task(name="judge", cache_policy=NO_CACHE)
def judge(run_path: str) -> dict[str, Any]:
    """Judge with every policy of the run; return and show what metrics.json holds."""
    from subtext.evaluation.held_out import judge_held_out

    run = RunDir(Path(run_path))
    prefect_progress = PrefectProgress(run.run_id)
    with library_log(), TerminalBar() as bar:

        def watch(progress: Progress) -> None:
            bar(progress)
            prefect_progress(progress)

        metrics = judge_held_out(run, watch)
    show_results(run)
    return metrics
