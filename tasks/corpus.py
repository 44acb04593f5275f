"""Prepare a corpus: fetch it, measure its clips, choose the Pivot Set, check the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from subtext.data.folder import AUDIO_FOLDER, data_root, resolve_data_root
from subtext.data.measure.corpus import MeasureError, measure_corpus
from subtext.errors import DataError, Problem
from subtext.markdown import escaped, markdown_table
from tasks.artifacts import quietly
from tasks.retry import can_retry
from tasks.watching import watched

# The library has its own patience with a connection; these outlast a router or a short outage.
_FETCH_DELAYS_S = [10, 60]


@task(
    name="fetch",
    cache_policy=NO_CACHE,
    retries=len(_FETCH_DELAYS_S),
    retry_delay_seconds=_FETCH_DELAYS_S,
    retry_condition_fn=can_retry,
)
def fetch(root: str) -> None:
    """Bring MUStARD into the folder; the table `refused` says what of it was not taken."""
    from subtext.data.sources import fetch as sources

    folder = data_root(root)
    with watched(folder.name) as watch:
        fetched = sources.fetch(folder, watcher=watch)
    get_run_logger().info(sources.summary(fetched))
    if fetched.extraction is not None:
        _show_problems("refused", fetched.extraction.refused, f"Not taken for {folder.name}")


@task(name="measure", cache_policy=NO_CACHE)
def measure(root: str, allow_missing: bool, n_workers: int) -> dict[str, Any]:
    """Measure the clips' sound; the table `failures` shows which can't be measured and why."""
    folder = resolve_data_root(root)
    title = f"Clips of {folder.name} that can't be measured"
    try:
        with watched(folder.name) as watch:
            measured = measure_corpus(
                folder, n_workers=n_workers, allow_missing=allow_missing, watcher=watch
            )
    except MeasureError as error:
        _show_problems("failures", error.problems, title)
        raise
    rows = [{"what": clip_id, "problem": why} for clip_id, why in measured.failures.items()]
    _show("failures", rows, title)
    return {**asdict(measured), "path": str(measured.path)}


@task(name="pivot", cache_policy=NO_CACHE)
def pivot(root: str) -> dict[str, Any]:
    """Choose the Pivot Set; return and show how many clips are in it, by stratum and label.

    Too few clips, or none admissible, is a warning: the corpus can be used without one.
    """
    from subtext.data.pivot.file import NoPivotSetError
    from subtext.data.pivot.make import make_pivot_set

    folder = resolve_data_root(root)
    counts: dict[str, Any] = {}
    try:
        with watched(folder.name) as watch:
            counts = make_pivot_set(folder, watcher=watch)["counts"]
    except NoPivotSetError as error:
        get_run_logger().warning("Going on without a Pivot Set. %s", error)
    _show("pivot-set", list(_pivot_rows(counts)), f"Pivot Set of {folder.name}")
    return counts


@task(name="validate", cache_policy=NO_CACHE)
def validate(root: str, allow_missing: bool) -> str:
    """Check and show the whole corpus; return its folder. Raises DataError for its problems.

    With `allow_missing` problems of sound files are shown only.
    """
    from subtext.data import validate as validation
    from subtext.data.validate_table import report_rows

    report = validation.validate(root)
    lines = [markdown_table(("what", "found"), report_rows(report))]
    lines += ["", *(f"- Note: {escaped(note)}" for note in report.notes)]
    lines += [f"- **Problem**: {escaped(str(problem))}" for problem in report.problems]
    text = "\n".join(lines)
    quietly(lambda: create_markdown_artifact(text, "validation", f"Corpus {report.root}"))
    problems = [
        problem
        for problem in report.problems
        if not (allow_missing and problem.where == AUDIO_FOLDER)
    ]
    if problems:
        raise DataError(f"Corpus {report.root} refused", problems)
    return report.root


def _pivot_rows(counts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row a count, all with the same columns: the page takes them from the first."""
    for name, count in counts.items():
        if name == "inadmissible":
            for reason, n_clips in count.items():
                yield _pivot_row(f"inadmissible: {reason}", n_clips)
        elif isinstance(count, int):
            yield _pivot_row(name, count)
        else:
            yield _pivot_row(name.replace("_", " "), sum(count.values()), **count)


def _pivot_row(
    clips: str, n_all: int, sarcastic: int | str = "", sincere: int | str = ""
) -> dict[str, Any]:
    return {"clips": clips, "all": n_all, "sarcastic": sarcastic, "sincere": sincere}


def _show_problems(key: str, problems: Sequence[Problem], title: str) -> None:
    rows = [
        {
            "what": problem.where.removeprefix("clip "),
            "problem": f"{problem.field} {problem.problem}",
            "remedy": problem.remedy,
        }
        for problem in problems
    ]
    _show(key, rows, title)


def _show(key: str, rows: list[dict[str, Any]], title: str) -> None:
    """Publish a table as an artifact; an empty one too, so that its absence means nothing."""
    quietly(lambda: create_table_artifact(rows, key, title))
