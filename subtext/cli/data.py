"""`subtext data`: fetch a corpus, check it, make its Pivot Set."""

from __future__ import annotations

import typer

data_app = typer.Typer(help="Fetch a corpus, check it, make its Pivot Set.")
