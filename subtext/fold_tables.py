"""The result of the official folds as tables, with the paper's beside it where that compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from rich.console import Group
from rich.text import Text

from subtext.config import BaselineName
from subtext.figures import interval_text
from subtext.markdown import escaped, markdown_table
from subtext.result_tables import against_rows, rich_table

MEAN_COLUMNS = ("mean over the folds", "precision", "recall", "F1", "accuracy")
FOLD_COLUMNS = ("run", "fold", "clips", "base", "trained", "F1")
POOLED_COLUMNS = ("pooled, trained against", "accuracy", "difference (95 %)", "verdict")
PAPER_COLUMNS = ("as published", "precision", "recall", "F1")

_NOT_GIVEN = "-"


def mean_rows(folds: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row a policy or baseline, in MEAN_COLUMNS; weighted figures, per cent as in the paper."""
    names = ("precision_weighted", "recall_weighted", "f1_weighted", "accuracy")
    return [
        (who, *(_per_cent(folds["mean"][who].get(name)) for name in names))
        for who in ("trained", "base", *get_args(BaselineName))
    ]


def fold_rows(folds: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row a fold, in FOLD_COLUMNS: accuracy of base and trained policy, F1 of the latter."""
    return [
        (
            fold["run_id"],
            str(fold["fold"]),
            str(fold["n"]),
            _per_cent(fold["policies"]["base"]["accuracy"]),
            _per_cent(fold["policies"]["trained"]["accuracy"]),
            _per_cent(fold["policies"]["trained"]["f1_weighted"]),
        )
        for fold in folds["folds"]
    ]


def paper_rows(folds: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row a published system, in PAPER_COLUMNS; none where the protocols differ."""
    paper = folds["paper"] or {"rows": []}
    return [
        (row["system"], f"{row['precision']:.1f}", f"{row['recall']:.1f}", f"{row['f1']:.1f}")
        for row in paper["rows"]
    ]


def pooled_sentence(folds: Mapping[str, Any]) -> str:
    """The pooled accuracy of the trained policies with its interval."""
    trained = folds["pooled"]["trained"]
    return (
        f"{folds['protocol']}: out-of-fold accuracy {trained['accuracy']:.3f} "
        f"({interval_text(trained['accuracy_interval'])}) on {folds['n_clips']} clips. The five "
        "policies share training clips, so the interval is somewhat too narrow."
    )


def paper_sentence(folds: Mapping[str, Any]) -> str:
    """Where the published table comes from, or why it is not shown."""
    if folds["paper"] is None:
        return str(folds["paper_left_out"])
    return f"Published: {folds['paper']['source']}; recalled, check before quoting."


def render_folds(folds: Mapping[str, Any]) -> Group:
    """Everything above as `rich` prints it."""
    published = rich_table("", PAPER_COLUMNS, paper_rows(folds)) if folds["paper"] else Text()
    return Group(
        Text(pooled_sentence(folds), style="bold"),
        rich_table("", MEAN_COLUMNS, mean_rows(folds)),
        published,
        Text(paper_sentence(folds)),
        rich_table("", POOLED_COLUMNS, against_rows(folds)),
        rich_table("Accuracy by fold", FOLD_COLUMNS, fold_rows(folds)),
    )


def folds_markdown(folds: Mapping[str, Any]) -> str:
    """Everything above as Markdown."""
    tables: Sequence[str] = (
        markdown_table(MEAN_COLUMNS, mean_rows(folds)),
        markdown_table(PAPER_COLUMNS, paper_rows(folds)),
        escaped(paper_sentence(folds)),
        markdown_table(POOLED_COLUMNS, against_rows(folds)),
        markdown_table(FOLD_COLUMNS, fold_rows(folds)),
    )
    return "\n\n".join([f"**{escaped(pooled_sentence(folds))}**", *filter(None, tables)])


def _per_cent(share: float | None) -> str:
    return _NOT_GIVEN if share is None else f"{100 * share:.1f}"
