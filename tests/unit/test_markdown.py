"""Tables in Markdown, read back by a parser."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from subtext.markdown import markdown_table

PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")
# Letters that Markdown gives no meaning to, and what a cell must survive.
TEXT = st.text(alphabet=st.sampled_from("ab01 .,%|-:+()é"), min_size=1, max_size=12)


def cells(markdown: str) -> list[list[str]]:
    """Rows of the one table in `markdown`, as shown."""
    html = PARSER.render(markdown)
    assert html.count("<table>") == 1, html
    return [
        [unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    ]


def test_a_table_is_read_back() -> None:
    rows = [("base", "0.500"), ("TF-IDF line + context", "+0.056 (-0.05 to +0.12)")]
    assert cells(markdown_table(("policy", "accuracy"), rows)) == [
        ["policy", "accuracy"],
        *map(list, rows),
    ]


def test_without_rows_there_is_no_table() -> None:
    assert markdown_table(("policy", "accuracy"), []) == ""


@pytest.mark.parametrize("cell", ["a|b", "|", "||", "a |", "| b"])
def test_a_bar_stays_in_its_cell(cell: str) -> None:
    assert cells(markdown_table(("one", "two"), [(cell, "x")]))[1] == [cell.strip(), "x"]


def test_a_line_break_does_not_end_a_row() -> None:
    """Errors of libraries, which a cell may quote, have several lines."""
    assert cells(markdown_table(("clip", "why"), [("1_1", "no sound\nin stream 0\r\n|")])) == [
        ["clip", "why"],
        ["1_1", "no sound in stream 0 |"],
    ]


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[TEXT] * n), min_size=1)))
def test_any_cells_keep_their_place(rows: list[tuple[str, ...]]) -> None:
    columns = [f"column {index}" for index in range(len(rows[0]))]
    found = cells(markdown_table(columns, rows))
    assert found == [columns, *([cell.strip() for cell in row] for row in rows)]
