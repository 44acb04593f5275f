"""The figures of a run as rows of text, for terminal, Prefect and model card alike.

Reads metrics.json, the gate's decision and the leak report, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from subtext.errors import DataError, Problem
from subtext.figures import difference_text, interval_text, percent
from subtext.printable import printable
from subtext.run_dir import RunDir

PASS_COLUMNS = ("policy", "accuracy", "95 %", "F1", "well-formed", "reward", "clips")
AGAINST_COLUMNS = ("trained against", "accuracy", "difference (95 %)", "verdict")
ABLATION_COLUMNS = ("trained, reading", "accuracy", "full - this (95 %)", "flips", "well-formed")
LEAK_COLUMNS = ("predictor", "accuracy", "95 %", "AUROC")
NAMES = {"base": "base", "warm": "warm-started", "trained": "trained", "champion": "champion"}

_NOT_THERE = "-"


def read_evaluation(run: RunDir) -> dict[str, Any]:
    """Return what metrics.json holds. Raises DataError where it is absent."""
    evaluation: dict[str, Any] | None = run.read(run.metrics)
    if evaluation is None:
        problem = Problem(
            str(run.path), "metrics.json", None, "is not there: this run has judged nothing yet",
            "It is still running, or a step failed: look at the flow run's log.",
        )  # fmt: skip
        raise DataError("Run not finished", [problem])
    return evaluation


def pass_rows(evaluation: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row a policy, in PASS_COLUMNS; "well-formed" is strict."""
    passes = evaluation["passes"]
    return [
        (
            label,
            f"{figures['accuracy']:.3f}",
            interval_text(figures["accuracy_interval"]),
            f"{figures['f1_weighted']:.3f}",
            f"{figures['strict_rate']:.3f}",
            f"{figures['mean_reward']:.3f}",
            str(figures["n_eval_clips"]),
        )
        for name, label in NAMES.items()
        if (figures := passes.get(name))
    ]


def against_rows(evaluation: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row a planned comparison, in AGAINST_COLUMNS; "difference" is ours minus theirs."""
    return [
        (
            row["name"],
            f"{row['accuracy_against']:.3f}",
            difference_text(row),
            row["verdict"],
        )
        for row in evaluation["comparisons"]
    ]


def ablation_rows(evaluation: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row an altered prompt, in ABLATION_COLUMNS; "flips": labels that changed."""
    return [
        (
            row["label"],
            f"{row['accuracy']:.3f}",
            difference_text(row),
            percent(row["flip_rate"]),
            f"{row['strict_rate']:.3f}",
        )
        for row in evaluation["ablations"].values()
    ]


def doubts(evaluation: Mapping[str, Any]) -> list[str]:
    """What stands against the figures, a sentence each: alarms of training, warnings, and alarms
    that passed before training ended."""
    passed = [
        f"While training, first at step {item['step']}: {item['message']}"
        for item in evaluation.get("passed_alarms", ())
    ]
    return [item["message"] for key in ("alarms", "warnings") for item in evaluation[key]] + passed


def gate_sentence(gate: Mapping[str, Any]) -> str:
    """The gate's decision, and the rules that stood in the way."""
    if gate["decision"] == "promote":
        return "promoted to champion"
    failed = [
        reason["rule"].replace("_", " ") for reason in gate["reasons"] if not reason["passed"]
    ]
    return f"not promoted; rules failed: {', '.join(failed)}"


def leak_rows(run: RunDir) -> list[tuple[str, ...]]:
    """One row a trivial predictor, in LEAK_COLUMNS; none for a run without a leak report."""
    report = run.read(run.leak_report, {"baselines": {}})
    return [
        (
            name,
            f"{figures['accuracy']:.3f}",
            interval_text(figures["accuracy_interval"]),
            _NOT_THERE if figures["auroc"] is None else f"{figures['auroc']:.3f}",
        )
        for name, figures in report["baselines"].items()
    ]


def leak_sentence(run: RunDir) -> str:
    """What is on both sides of the split, in one line. The run has a leak report."""
    report = run.read(run.leak_report)
    scenes, speakers, shows = report["scenes"], report["speakers"], report["shows"]
    return (
        f"Split {report['split']}: {scenes['n_pairs_across']} scene pairs across it; training "
        f"knows the speaker of {percent(speakers['held_out_share_known'])} and the show of "
        f"{percent(shows['held_out_share_known'])} of {report['n_held_out']} held-out clips."
    )


def rich_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return what `rich` prints of `rows`."""
    # Text where a file or folder named it: rich reads "[…]" in a str as markup.
    table = Table(title=Text(printable(title)) if title else None, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, no_wrap=index > 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table
