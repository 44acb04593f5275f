"""`report.html`: the evaluation as one file that needs no network and runs no foreign script.

Text from clips and models is escaped by Jinja, or travels as JSON that the page's own script puts
in as text. A content security policy allows that one script, by its hash, and nothing else. The
same evaluation gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from subtext import strict_json
from subtext.config import Ablation, BaselineName
from subtext.evaluation.report import wording
from subtext.evaluation.report.clips import POLICIES
from subtext.evaluation.report.palette import PALETTE

if TYPE_CHECKING:
    from jinja2 import Template

# JSON inside HTML: what could end the script element, or a line in old JavaScript.
_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
_SVG_START = re.compile(r'<svg\b[^>]*viewBox="([^"]*)"[^>]*>')
_SVG_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)
_ROLE_OF = {colour: role for role, colour in PALETTE.items()}
_COLOURS = re.compile("|".join(_ROLE_OF))


def render_report(
    evaluation: Mapping[str, Any], clips: Sequence[Mapping[str, Any]], plots: Mapping[str, str]
) -> str:
    """Return the page for `evaluation` (schema subtext.evaluation/1).

    `clips` are the rows of `clips.clip_rows`, `plots` what `plots.draw_plots` returned; a plot, a
    pass or a section that is not there is left out. NaN and Infinity read "–" in the figures;
    among the clips they raise ValueError.
    """
    from markupsafe import Markup

    script = _text("report.js")
    page = _template().render(
        evaluation=strict_json.finite(evaluation),
        baselines=get_args(BaselineName),
        ablations=get_args(Ablation),
        policies=[name for name in POLICIES if name in evaluation["passes"]],
        figures=wording.FIGURES,
        plots={name: Markup(_inline(svg)) for name, svg in plots.items()},
        clips=Markup(_script_json(clips)),
        style=Markup(_text("report.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    return str(page)


def write_report(path: Path, html: str) -> Path:
    """Write `html` to `path` in one step and return `path`."""
    return strict_json.write_text(path, html)


@cache
def _template() -> Template:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        autoescape=True, loader=FunctionLoader(_text), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(wording.FILTERS)
    return environment.get_template("report.html.jinja")


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _script_json(value: Any) -> str:
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _inline(svg: str) -> str:
    """The drawing without what only a file needs, its colours as variables of the page."""
    drawing = _SVG_STYLE.sub("", svg[svg.index("<svg") :])
    drawing = _SVG_START.sub(r'<svg viewBox="\1" aria-hidden="true" focusable="false">', drawing)
    return _COLOURS.sub(lambda found: f"var(--plot-{_ROLE_OF[found.group()]})", drawing)
