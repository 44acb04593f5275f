"""What ends a run: the verdict, tables of figures, where everything lies, what to try next.

Reads the files of the run directory, and nothing else.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from subtext.errors import DataError, Problem
from subtext.markdown import code
from subtext.paths import project_root
from subtext.printable import printable
from subtext.result_tables import (
    ABLATION_COLUMNS,
    AGAINST_COLUMNS,
    PASS_COLUMNS,
    ablation_rows,
    against_rows,
    doubts,
    gate_sentence,
    leak_sentence,
    pass_rows,
    read_evaluation,
    rich_table,
)
from subtext.run_dir import RunDir
from subtext.tracking.store import sqlite_path

_NOT_TRACKED = "not tracked"
_ADDRESS = (
    ":/?#[]@!$&'()*+,;=%~"  # what an address may hold beside letters, digits, "-", "." and "_"
)


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
    evaluation = read_evaluation(run)
    # Text where a file or folder named it: rich reads "[…]" in a str as markup.
    parts: list[RenderableType] = [
        Text(printable(evaluation["verdict"]), style="bold"),
        Text(),
        rich_table(f"Held-out clips, {run.run_id}", PASS_COLUMNS, pass_rows(evaluation)),
        Text(_reading_aid(evaluation)),
        Text(),
        rich_table("The trained policy beside others", AGAINST_COLUMNS, against_rows(evaluation)),
        Text(),
    ]
    if rows := ablation_rows(evaluation):
        parts += [
            rich_table("Does the voice matter?", ABLATION_COLUMNS, rows),
            Text("A policy trained with prosody stumbles without it: a loss alone is no proof."),
            Text(),
        ]
    parts += [Text(printable(f"! {doubt}"), style="yellow") for doubt in doubts(evaluation)]
    if run.leak_report.exists() and not run.judged_model.exists():
        parts += [Text(printable(leak_sentence(run))), Text()]
    places = Table.grid(padding=(0, 2))
    for what, where in place_rows(run):
        places.add_row(Text(printable(what), style="bold"), Text(printable(where), overflow="fold"))
    lines = [line for command in next_commands(run) for line in command.splitlines()]
    commands = [Text(printable(f"  {line}"), no_wrap=True, overflow="ignore") for line in lines]
    return Group(*parts, places, Text(), Text("Next:"), *commands)


def _reading_aid(evaluation: Mapping[str, Any]) -> str:
    trained = evaluation["passes"]["trained"]
    aid = (
        f"{trained['n_with_prosody']} of {trained['n_eval_clips']} clips have prosody. A malformed "
        "answer counts as wrong. The commoner label of these clips alone scores "
        f"{trained['majority_accuracy']:.3f}."
    )
    if gain := evaluation["smallest_gain"]:
        points = round(100 * gain)
        return (
            f"{aid} A true gain under {points} points would most likely go unseen on so few clips."
        )
    return f"{aid} So few clips can't show any difference."


def place_rows(run: RunDir) -> list[tuple[str, str]]:
    """(what, where) of the run directory, report, MLflow run, version, gate and every upload."""
    rows = [("run directory", _relative(run.path))]
    if judged := run.read(run.judged_model):
        rows.append(("judged", f"{judged['model']}; {_left_out(judged)}"))
    if run.report.exists():
        rows.append(("report", _relative(run.report)))
    tracking = run.read(run.tracking, {})
    if "run_id" in tracking:
        rows.append(("MLflow run", f"{tracking['run_id']} in {tracking['uri']}"))
    if model := tracking.get("model"):
        alias = f", alias {model['alias']}" if model["alias"] else ""
        rows.append(("registered version", model["uri"] + alias))
    if gate := run.read(run.gate):
        rows.append(("gate", gate_sentence(gate)))
    for name, landed in sorted(run.read(run.published, {}).items()):
        rows.append((f"published {name}", f"{landed['url']} at commit {landed['revision'][:12]}"))
    return rows


def _left_out(judged: Mapping[str, Any]) -> str:
    if judged["n_trained_on"] is None:
        return "which clips it was trained on is not known"
    return (
        f"left out: {judged['n_trained_on']} clips that it was trained on, "
        f"{judged['n_same_scene']} of a scene with one"
    )


def mlflow_link(run: RunDir) -> str:
    """Where the MLflow run is looked at: an address, or the command that serves one."""
    tracking = run.read(run.tracking, {})
    if "run_id" not in tracking:
        return _NOT_TRACKED
    run_id, uri = tracking["run_id"], tracking["uri"]
    if uri.startswith("http"):
        experiment = tracking.get("experiment_id", "0")
        address = f"{uri.rstrip('/')}/#/experiments/{experiment}/runs/{run_id}"
        return f"<{quote(address, safe=_ADDRESS)}>"
    return f"run {code(run_id)}, shown by {code(f'mlflow ui --backend-store-uri {uri}')}"


def next_commands(run: RunDir) -> list[str]:
    """Commands that look further into `run` and work as typed, in a fresh shell too."""
    commands = [*_activation(), f"subtext show {_shell_path(run.path)}"]
    if run.report.exists():
        commands.append(f"# open {_shell_path(run.report)} in a browser")
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
        commands += [
            f"subtext judge --line 'Oh, great. Another meeting.' --model {model['uri']}",
            "subtext champion show",
        ]
        name = f"models:/{model['name']}@{model['alias']}" if model["alias"] else model["uri"]
        commands.append(
            f'MLFLOW_TRACKING_URI={uri} python -c "import mlflow; \\\n'
            f"  judge = mlflow.pyfunc.load_model('{name}'); \\\n"
            '  print(judge.predict(judge.input_example))"'
        )
    return commands


def _relative(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _shell_path(path: Path) -> str:
    return shlex.quote(_relative(path))
