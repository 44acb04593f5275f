"""The table that ends a run: how good every pass is, where everything lies, what to try next.

Reads the files of the run directory, and nothing else.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from subtext.errors import DataError, Problem
from subtext.paths import project_root
from subtext.run_dir import RunDir
from subtext.tracking.store import sqlite_path

LEAK_COLUMNS = ("predictor", "accuracy", "95 %", "AUROC")
PASS_COLUMNS = ("policy", "accuracy", "95 %", "well-formed", "reward", "clips", "prosody")
_PASS_NAMES = {"base": "base", "warm": "warm-started", "trained": "trained"}


def find_run(name: str | Path) -> RunDir:
    """Return the run at a path, or of that id in `runs/`. Raises DataError where there is none."""
    for candidate in (Path(name), project_root() / name, project_root() / "runs" / name):
        run = RunDir(candidate.resolve())
        if run.config.exists():
            return run
    problem = Problem(
        "command line", "run", str(name), "is no run directory (it holds no config.json)",
        "Give a folder such as runs/<id>; `ls runs` lists them.",
    )  # fmt: skip
    raise DataError("Run not found", [problem])


def render_summary(run: RunDir) -> Group:
    """Return what `rich` prints for `run`. Raises DataError before anything was judged."""
    # Text where a file or folder named it: rich reads "[…]" in a str as markup.
    title = Text(f"Held-out clips, {run.run_id}")
    results = Table(title=title, title_justify="left")
    for column in PASS_COLUMNS:
        results.add_column(column, no_wrap=True)
    for row in pass_rows(run):
        results.add_row(*row)
    places = Table.grid(padding=(0, 2))
    for what, where in place_rows(run):
        places.add_row(Text(what, style="bold"), Text(where, overflow="fold"))
    lines = [line for command in next_commands(run) for line in command.splitlines()]
    commands = [Text(f"  {line}", no_wrap=True, overflow="ignore") for line in lines]
    parts = [results, Text(_reading_aid(run)), Text(), *_leaks(run), places, Text()]
    return Group(*parts, Text("Next:"), *commands)


def _leaks(run: RunDir) -> list[RenderableType]:
    table = Table(title="What the split leaks, on all held-out clips", title_justify="left")
    for column in LEAK_COLUMNS:
        table.add_column(column, no_wrap=True)
    for name, *figures in leak_rows(run):
        table.add_row(Text(name), *figures)
    return [table, Text(leak_sentence(run)), Text()] if table.row_count else []


def _reading_aid(run: RunDir) -> str:
    trained = run.read(run.metrics)["passes"].get("trained", {})
    aid = "A malformed answer counts as wrong."
    if "majority_accuracy" in trained:
        aid += (
            f" The commoner label of these clips alone scores {trained['majority_accuracy']:.3f}."
        )
    return aid


def pass_rows(run: RunDir) -> list[tuple[str, ...]]:
    """One row a pass, in PASS_COLUMNS; "prosody" counts the clips that have it.

    Raises DataError where metrics.json is absent.
    """
    metrics = run.read(run.metrics)
    if metrics is None:
        problem = Problem(
            str(run.path), "metrics.json", None, "is not there: this run has judged nothing yet",
            "It is still running, or a step failed: look at the flow run's log.",
        )  # fmt: skip
        raise DataError("Run not finished", [problem])
    passes = metrics["passes"]
    return [_pass_row(label, passes[key]) for key, label in _PASS_NAMES.items() if key in passes]


def leak_rows(run: RunDir) -> list[tuple[str, ...]]:
    """One row a trivial predictor, in LEAK_COLUMNS; none for a run without a leak report."""
    report = run.read(run.leak_report, {"baselines": {}})
    return [_leak_row(name, figures) for name, figures in report["baselines"].items()]


def leak_sentence(run: RunDir) -> str:
    """What is on both sides of the split, in one line. The run has a leak report."""
    report = run.read(run.leak_report)
    scenes, speakers, shows = report["scenes"], report["speakers"], report["shows"]
    return (
        f"Split {report['split']}: {scenes['n_pairs_across']} scene pairs across it; training "
        f"knows the speaker of {speakers['held_out_share_known']:.0%} and the show of "
        f"{shows['held_out_share_known']:.0%} of {report['n_held_out']} held-out clips."
    )


def place_rows(run: RunDir) -> list[tuple[str, str]]:
    """(what, where) of the run directory, the MLflow run, the version and every upload."""
    rows = [("run directory", _relative(run.path))]
    tracking = run.read(run.tracking, {})
    if "run_id" in tracking:
        rows.append(("MLflow run", f"{tracking['run_id']} in {tracking['uri']}"))
    if model := tracking.get("model"):
        alias = f", alias {model['alias']}" if model["alias"] else ""
        rows.append(("registered version", model["uri"] + alias))
    for name, landed in sorted(run.read(run.published, {}).items()):
        rows.append((f"published {name}", f"{landed['url']} at commit {landed['revision'][:12]}"))
    return rows


def next_commands(run: RunDir) -> list[str]:
    """Commands that look further into `run` and work as typed, in a fresh shell too."""
    commands = [*_activation(), f"subtext show {_shell_path(run.path)}"]
    tracking = run.read(run.tracking, {})
    if "uri" in tracking:
        commands += _mlflow_commands(tracking["uri"], tracking.get("model"))
    published = run.read(run.published, {}).values()
    if any(urlsplit(landed["url"]).hostname == "127.0.0.1" for landed in published):
        commands.append("subtext hub   # serves what was published, at a new address")
    commands.append("subtext config fields")
    guide = project_root() / "docs" / "deploy.md"
    return [*commands, f"less {_shell_path(guide)}"] if guide.exists() else commands


def _activation() -> list[str]:
    script = Path(sys.prefix) / "bin" / "activate"
    return [f". {_shell_path(script)}"] if not shutil.which("subtext") and script.exists() else []


def _mlflow_commands(uri: str, model: dict[str, Any] | None) -> list[str]:
    if uri.startswith("http"):
        commands = [f"# open {uri} in a browser"]
    else:
        database = sqlite_path(uri)
        uri = uri if database is None else shlex.quote(f"sqlite:///{_relative(database)}")
        commands = [f"mlflow ui --backend-store-uri {uri}"]
    if model:
        name = f"models:/{model['name']}@{model['alias']}" if model["alias"] else model["uri"]
        commands.append(
            f'MLFLOW_TRACKING_URI={uri} python -c "import mlflow; \\\n'
            f"  judge = mlflow.pyfunc.load_model('{name}'); \\\n"
            '  print(judge.predict(judge.input_example))"'
        )
    return commands


def _pass_row(label: str, figures: dict[str, Any]) -> tuple[str, ...]:
    low, high = figures["accuracy_interval"]
    return (
        label,
        f"{figures['accuracy']:.3f}",
        f"{low:.2f}-{high:.2f}",
        f"{figures['well_formed_rate']:.3f}",
        f"{figures['mean_reward']:.3f}",
        str(figures["n_eval_clips"]),
        str(figures["n_with_prosody"]),
    )


def _leak_row(name: str, figures: dict[str, Any]) -> tuple[str, ...]:
    low, high = figures["accuracy_interval"]
    auroc = "-" if figures["auroc"] is None else f"{figures['auroc']:.3f}"
    return name, f"{figures['accuracy']:.3f}", f"{low:.2f}-{high:.2f}", auroc


def _relative(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _shell_path(path: Path) -> str:
    return shlex.quote(_relative(path))
