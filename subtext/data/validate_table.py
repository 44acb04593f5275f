"""The report on a corpus as a person reads it: one table, then notes, then problems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from subtext.data.validate import Report, encodable, most
from subtext.printable import printable

if TYPE_CHECKING:
    from rich.console import Group

_SHOWN_PROBLEMS = 100


def render_report(report: Report) -> Group:
    """Return what `rich` prints: one table, then notes, then problems with their remedies.

    Of many problems the first are shown; `Report.as_json` has all.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    # Text, never str: rich reads "[…]" in a str as markup.
    title = Text(printable(encodable(f"Corpus {report.root}")))
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in report_rows(report):
        table.add_row(name, Text(printable(text)))
    lines = [Text(printable(f"Note: {note}")) for note in report.notes]
    shown, hidden = report.problems[:_SHOWN_PROBLEMS], len(report.problems) - _SHOWN_PROBLEMS
    lines += [Text(printable(encodable(f"Problem: {problem}")), style="red") for problem in shown]
    if hidden > 0:
        lines.append(Text(f"{hidden} more problems: --json lists all.", style="red"))
    return Group(table, *lines)


def report_rows(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what the table says, line by line: a name and a text."""
    counts = report.counts
    texts, scenes, prosody = counts["texts"], counts["scenes"], counts["prosody"]
    n = counts["clips"]
    yield "clips", f"{n}: {counts['sarcastic']} sarcastic, {counts['sincere']} sincere"
    yield "shows", f"{len(counts['shows'])}: {most(counts['shows'])}"
    yield "speakers", f"{len(counts['speakers'])}: {most(counts['speakers'])}"
    extractor = f"; {prosody['extractor']}" if prosody["extractor"] else ""
    yield (
        "prosody",
        f"{prosody['clips']} of {n} ({prosody['sarcastic']} sarcastic, "
        f"{prosody['sincere']} sincere){extractor}",
    )
    yield "quality flags", most(prosody["flags"]) if prosody["flags"] else "none"
    yield (
        "sound files",
        f"{counts['audio']['clips']} of {n} clips; {counts['audio']['files']} files",
    )
    yield (
        "same texts",
        f"{texts['identical']} groups with equal line and context, {texts['minimal_pairs']} of "
        f"them with both labels; {texts['lines_with_both_labels']} lines with both labels",
    )
    yield (
        "scenes",
        f"{scenes['scenes']}; {scenes['of_several_clips']} of several clips, the largest "
        f"{scenes['largest']}; {scenes['shared_lines']} shared lines",
    )
    pivot = counts["pivot"]
    strata = f" ({most(pivot['strata'])})" if pivot["strata"] else ""
    yield "Pivot Set", f"{pivot['clips']} clips{strata}" if pivot["present"] else "none"
    yield "problems", str(len(report.problems)) if report.problems else "none"
