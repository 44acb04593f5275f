"""The plots of the report, as SVG text: small, text stays text, the same bytes each time.

A file shows the light palette; the page replaces its colours, see `palette.py`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from subtext.evaluation.report import drawings
from subtext.evaluation.report.palette import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GROUP_ID = re.compile(r'(<g) id="[^"]*"')
_SETTINGS = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "figure.facecolor": PALETTE["paper"],
    "savefig.facecolor": PALETTE["paper"],
    "axes.facecolor": "none",
    "axes.edgecolor": PALETTE["muted"],
    "axes.labelcolor": PALETTE["ink"],
    "axes.titlecolor": PALETTE["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "grid.color": PALETTE["grid"],
    "grid.linewidth": 0.8,
    "text.color": PALETTE["ink"],
    "xtick.color": PALETTE["muted"],
    "ytick.color": PALETTE["muted"],
    "xtick.labelcolor": PALETTE["ink"],
    "ytick.labelcolor": PALETTE["ink"],
}
# Whole fields are left out: a date would change the bytes, the others say nothing.
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def draw_plots(
    evaluation: Mapping[str, Any], log_history: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Return name -> SVG text of every plot that has something to show, in reading order.

    `evaluation` is of schema subtext.evaluation/1, `log_history` the trainer's. Names: `training,
    length, differences, confusion, reliability, risk_coverage`.
    """
    import matplotlib

    passes = evaluation["passes"]
    curve = evaluation["generalisation"]["curve"]
    plots = {}
    with matplotlib.rc_context(_SETTINGS):
        drawn = {
            "training": drawings.training(log_history, curve),
            "length": drawings.length(log_history),
            "differences": drawings.differences(evaluation["comparisons"], evaluation["ablations"]),
            "confusion": drawings.confusion(passes.get("trained")),
            "reliability": drawings.reliability(passes),
            "risk_coverage": drawings.risk_coverage(passes),
        }
        for name, figure in drawn.items():
            if figure is not None:
                plots[name] = _svg(figure, name)
    return plots


def _svg(figure: Figure, name: str) -> str:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    drawn = io.BytesIO()
    # Ids of marks and clips are hashed with the salt: several plots share one page.
    with matplotlib.rc_context({"svg.hashsalt": f"subtext {name}"}):
        FigureCanvasSVG(figure).print_svg(drawn, metadata=_NO_METADATA)
    return _GROUP_ID.sub(r"\1", drawn.getvalue().decode())
