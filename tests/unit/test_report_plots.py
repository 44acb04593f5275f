"""The report's plots: what is there is drawn, what is not leaves no frame, the bytes repeat."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from support.evaluation import example

from subtext import strict_json
from subtext.evaluation.report import drawings
from subtext.evaluation.report.palette import PALETTE
from subtext.evaluation.report.plots import draw_plots

NAMES = ["training", "length", "differences", "confusion", "reliability", "risk_coverage"]
LARGEST_BYTES = 60_000


@pytest.fixture(scope="module")
def plots() -> dict[str, str]:
    made = example(champion=True)
    return draw_plots(made.evaluation, made.log_history)


def texts(svg: str) -> list[str]:
    found = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(element.itertext()) for element in found]


def test_every_plot_is_small_xml_that_names_no_date(plots: dict[str, str]) -> None:
    assert list(plots) == NAMES
    for name, svg in plots.items():
        assert texts(svg), name
        assert len(svg) < LARGEST_BYTES, name
        assert "metadata" not in svg and "date" not in svg.lower(), name


def test_the_same_evaluation_gives_the_same_bytes(plots: dict[str, str]) -> None:
    made = example(champion=True)
    # As read back from metrics.json, whose keys are sorted.
    stored = strict_json.loads(strict_json.dumps(made.evaluation))
    assert draw_plots(stored, made.log_history) == plots


def test_drawing_leaves_matplotlib_as_it_was(plots: dict[str, str]) -> None:
    before = dict(matplotlib.rcParams)
    made = example(10)
    draw_plots(made.evaluation, made.log_history)
    assert dict(matplotlib.rcParams) == before


def test_all_colours_are_roles_of_the_palette(plots: dict[str, str]) -> None:
    for name, svg in plots.items():
        assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) <= set(PALETTE.values()), name


def test_plots_on_one_page_share_no_id(plots: dict[str, str]) -> None:
    ids = [found for svg in plots.values() for found in re.findall(r' id="([^"]*)"', svg)]
    assert ids and len(ids) == len(set(ids))
    for svg in plots.values():
        assert set(re.findall(r"url\(#([^)]*)\)", svg)) <= set(re.findall(r' id="([^"]*)"', svg))


def test_counts_and_names_can_be_read(plots: dict[str, str]) -> None:
    evaluation = example(champion=True).evaluation
    for name in ("base", "warm", "trained"):
        assert name in texts(plots["reliability"])
        for item in evaluation["passes"][name]["reliability"]:
            assert str(item["n"]) in texts(plots["reliability"])
    cells = evaluation["passes"]["trained"]["confusion"]
    for count in (count for row in cells.values() for count in row.values()):
        assert str(count) in texts(plots["confusion"])
    for row in evaluation["comparisons"]:
        assert row["name"] in texts(plots["differences"])
    for row in evaluation["ablations"].values():
        assert row["label"] in texts(plots["differences"])
    assert {"base", "warm", "trained", "champion"} <= set(texts(plots["risk_coverage"]))


def without(*path: str, empty: Any) -> dict[str, Any]:
    evaluation = deepcopy(example().evaluation)
    part = evaluation
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = empty
    return evaluation


@pytest.mark.parametrize(
    ("evaluation", "history", "absent"),
    [
        # Trained elsewhere and judged once: one point is no curve.
        (without("generalisation", "curve", empty=[]), [], {"training", "length"}),
        # A log that lacks the columns, or holds nothing but null: rewards that were all NaN.
        (
            without("generalisation", "curve", empty=[]),
            [{"step": 1, "reward": None}, {"train_runtime": 1.0}],
            {"training", "length"},
        ),
        # A learning curve alone is worth a plot.
        (example().evaluation, [], {"length"}),
        (
            {**without("comparisons", empty=[]), "ablations": {}},
            example().log_history,
            {"differences"},
        ),
        # Any adapter can be evaluated: no base, no warm start, nothing else.
        (without("passes", empty={}), example().log_history,
         {"confusion", "reliability", "risk_coverage"}),
    ],
)  # fmt: skip
def test_what_is_not_there_leaves_no_frame(
    evaluation: dict[str, Any], history: list[dict[str, Any]], absent: set[str]
) -> None:
    assert set(draw_plots(evaluation, history)) == set(NAMES) - absent


def test_one_clip_is_drawn_without_nan() -> None:
    made = example(1)
    for name, svg in draw_plots(made.evaluation, made.log_history).items():
        assert not re.search(r"\b(nan|NaN|inf|None)\b", svg), name


def test_a_gap_in_the_log_is_left_out() -> None:
    history = [{"step": step, "reward": 0.5 if step % 2 else None} for step in range(1, 9)]
    figure = drawings.training(history, [])
    assert figure is not None
    assert list(figure.axes[0].lines[0].get_xdata()) == [1, 3, 5, 7]
    assert len(figure.axes) == 1  # no accuracy in the log, no panel for it


def test_lengths_without_a_share_cut_have_one_panel() -> None:
    figure = drawings.length([{"step": 1, "completions/mean_length": 40.0}])
    assert figure is not None and len(figure.axes) == 1


@pytest.mark.parametrize(
    ("verdict", "role"),
    [("better", "trained"), ("worse", "trained"), ("not distinguishable", "paper")],
)
def test_only_a_finding_is_a_filled_mark(verdict: str, role: str) -> None:
    row = {"name": "base", "kind": "policy", "difference": 0.1, "interval": None}
    figure = drawings.differences([{**row, "verdict": verdict}], {})
    assert figure is not None
    mark = figure.axes[0].lines[-1]
    assert mark.get_markerfacecolor() == PALETTE[role]
    assert list(mark.get_xdata()) == [10.0]


def test_accuracy_on_fewer_than_five_clips_is_not_drawn() -> None:
    figures = {"n_eval_clips": 20, "risk_coverage": [[k / 20, 1.0] for k in range(1, 21)]}
    figure = drawings.risk_coverage({"trained": figures})
    assert figure is not None
    assert min(figure.axes[0].lines[0].get_xdata()) == 5 / 20
