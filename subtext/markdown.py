"""Text in Markdown that shows itself, whatever it holds, and tables of such text.

For CommonMark with GitHub's tables, as the Hub, MLflow and Prefect render it. A bare address stays
an address: pages make it one to click, and fetch nothing for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from subtext.printable import printable

# An underscore inside a word means nothing.
_INLINE = re.compile(r"[\\`*\[\]~|$]|(?<![^\W_])_|_(?![^\W_])")
_ENTITIES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_BLOCK = re.compile(r"(?:[#+\-=]+|\d{1,9}[.)])(?=\s|$)")
_TICKS = re.compile("`+")


def escaped(text: str) -> str:
    """Return `text` on one line, as Markdown that shows it letter by letter: no markup, no HTML.

    It may stand where a block begins, or after other text.
    """
    line = _inline(text)
    if begins := _BLOCK.match(line):
        last = begins.end() - 1
        return f"{line[:last]}\\{line[last:]}" if line[0].isdigit() else f"\\{line}"
    return line


def code(text: str) -> str:
    """Return `text` on one line as Markdown's code, which no backtick in it ends.

    Not for a table's cell, where a bar would end it.
    """
    line = _one_line(text) or " "
    ticks = "`" * (1 + max(map(len, _TICKS.findall(line)), default=0))
    space = " " if line[0] in "` " or line[-1] in "` " else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of texts that show themselves (`escaped`), or "" without rows."""
    if not rows:
        return ""
    lines = [_row(columns), _row(["---"] * len(columns)), *map(_row, rows)]
    return "\n".join(lines)


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(map(_inline, texts))} |"


def _inline(text: str) -> str:
    return _INLINE.sub(r"\\\g<0>", _one_line(text).translate(_ENTITIES))


def _one_line(text: str) -> str:
    return printable(" ".join(text.splitlines()).strip())
