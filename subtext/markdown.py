"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

_ESCAPED_BAR = r"\|"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table, or "" without rows. What would end a cell is escaped: "|", or a line break,
    which becomes a space."""
    if not rows:
        return ""
    return "\n".join(
        f"| {' | '.join(_cell(text) for text in line)} |"
        for line in (columns, ["---"] * len(columns), *rows)
    )


def _cell(text: str) -> str:
    return " ".join(text.splitlines()).replace("|", _ESCAPED_BAR)
