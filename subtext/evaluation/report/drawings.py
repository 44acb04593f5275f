"""What each plot shows. Every function returns a Figure, or None where there is nothing to draw.

They draw with the settings of `plots.py`, which calls them, and outside pyplot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from subtext.answer import LABELS
from subtext.config import Ablation
from subtext.evaluation.metrics import MALFORMED
from subtext.evaluation.report.palette import PALETTE, WIDTH_IN
from subtext.evaluation.report.wording import ordered
from subtext.evaluation.statistics import NOT_DISTINGUISHABLE
from subtext.figures import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Figures = Mapping[str, Any]
Points = list[tuple[float, float]]

# role of the palette, marker, line; the order of legends
_STYLES = {
    "base": ("o", ":"),
    "warm": ("s", "--"),
    "trained": ("D", "-"),
    "champion": ("^", "-."),
}
_GROUPS = {"policy": ("trained", "D"), "baseline": ("warm", "s"), "ablation": ("ablation", "o")}
_SMOOTHED_SHARE = 10  # the running mean spans one tenth of the steps
_ROW_IN = 0.27
_FEWEST_CLIPS = 5  # accuracy on fewer says nothing


def training(history: Sequence[Figures], curve: Sequence[Figures]) -> Figure | None:
    """Reward and accuracy of the training batches over steps, held-out accuracy with intervals."""
    reward, accuracy = _points(history, "reward"), _points(history, "accuracy")
    if not (reward or accuracy or len(curve) > 1):
        return None
    n_panels = bool(reward) + bool(accuracy or curve)
    figure = _figure(0.3 + 1.8 * n_panels)
    panels = figure.subplots(n_panels, 1, sharex=True, squeeze=False)[:, 0]
    if reward:
        _draw_reward(panels[0], reward)
    if accuracy or curve:
        _draw_accuracy(panels[-1], accuracy, curve)
    panels[-1].set_xlabel("step")
    return figure


def length(history: Sequence[Figures]) -> Figure | None:
    """Mean length of completions over steps, and the share cut at the token limit."""
    tokens = _points(history, "completions/mean_length")
    clipped = _points(history, "completions/clipped_ratio")
    if not tokens:
        return None
    heights = [2, 1] if clipped else [2]
    figure = _figure(1.0 * sum(heights))
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    _noisy_line(panels[0, 0], tokens, "trained", "")
    panels[0, 0].set_ylim(bottom=0)
    panels[0, 0].set_ylabel("tokens")
    if clipped:
        _noisy_line(panels[1, 0], clipped, "ablation", "")
        panels[1, 0].set_ylim(-0.03, 1.03)
        panels[1, 0].set_ylabel("share cut")
    panels[-1, 0].set_xlabel("step")
    return figure


def differences(comparisons: Sequence[Figures], ablations: Figures) -> Figure | None:
    """A forest plot: differences in accuracy with intervals, filled where they are findings."""
    rows: list[tuple[str, str, Figures | None]] = []
    if comparisons:
        rows.append(("trained policy minus", "heading", None))
        rows += [(row["name"], row["kind"], row) for row in comparisons]
    if ablations:
        rows.append(("full prompt minus", "heading", None))
        rows += [
            (row["label"], "ablation", row) for _, row in ordered(ablations, get_args(Ablation))
        ]
    if not rows:
        return None
    figure = _figure(0.7 + _ROW_IN * len(rows))
    axes = figure.subplots()
    axes.axvline(0, color=PALETTE["ink"], linewidth=1)
    for index, (_, kind, row) in enumerate(rows):
        if row is not None:
            _forest_row(axes, index, *_GROUPS[kind], row)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    for label, (_, kind, _) in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if kind == "heading" else "normal")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params("y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlabel("points of accuracy")
    return figure


def confusion(trained: Figures | None) -> Figure | None:
    """Counts of the trained policy: gold label down, answer across."""
    if trained is None:
        return None
    answers = [*LABELS, MALFORMED]
    counts = np.array([[trained["confusion"][gold][said] for said in answers] for gold in LABELS])
    figure = _figure(2.3)
    axes = figure.subplots()
    for (row, column), count in np.ndenumerate(counts):
        share = count / max(1, counts[row].sum())
        right = answers[column] == LABELS[row]
        axes.add_patch(_cell(row, column, "trained" if right else "warm", 0.45 * float(share)))
        axes.text(
            column, row, f"{count}\n{percent(share)}", ha="center", va="center",
            fontweight="bold" if right else "normal",
        )  # fmt: skip
    axes.set_xlim(-0.5, len(answers) - 0.5)
    axes.set_ylim(len(LABELS) - 0.5, -0.5)
    axes.set_xticks(range(len(answers)), answers)
    axes.set_yticks(range(len(LABELS)), LABELS)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("the trained policy's answer")
    axes.set_ylabel("gold label")
    return figure


def reliability(passes: Figures) -> Figure | None:
    """One panel a policy: accuracy over stated confidence, each point with its count of clips."""
    shown = [
        name for name in ("base", "warm", "trained") if passes.get(name, {}).get("reliability")
    ]
    if not shown:
        return None
    figure = _figure(2.5)
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, shown, strict=True):
        bins = passes[name]["reliability"]
        x, y = [item["confidence"] for item in bins], [item["accuracy"] for item in bins]
        axes.plot([0, 1], [0, 1], color=PALETTE["muted"], linewidth=0.8, linestyle="--")
        axes.errorbar(
            x, y, yerr=_arms(y, [item["interval"] for item in bins]), fmt=_STYLES[name][0],
            color=PALETTE[name], markersize=5, elinewidth=1.2,
        )  # fmt: skip
        for item in bins:
            axes.annotate(
                str(item["n"]), (item["confidence"], item["interval"][0]), (0, -3),
                textcoords="offset points", ha="center", va="top", fontsize=7.5,
                color=PALETTE["muted"],
            )  # fmt: skip
        axes.set_title(name)
        lowest = 0.5 if min(x) >= 0.5 else 0.0
        axes.set_xlim(lowest - 0.04, 1.04)
        axes.set_xticks(
            [lowest, (1 + lowest) / 2, 1], [f"{lowest:g}", f"{(1 + lowest) / 2:g}", "1"]
        )
        axes.set_ylim(-0.12, 1.05)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    panels[0].set_ylabel("accuracy")
    figure.supxlabel("stated confidence", fontsize=9)
    return figure


def risk_coverage(passes: Figures) -> Figure | None:
    """Accuracy on the most confident share of the clips, a line a policy."""
    shown = [name for name in _STYLES if passes.get(name, {}).get("risk_coverage")]
    if not shown:
        return None
    figure = _figure(2.8)
    axes = figure.subplots()
    for name in shown:
        least = _FEWEST_CLIPS / passes[name]["n_eval_clips"]
        points = np.array(passes[name]["risk_coverage"], dtype=float)
        coverage, accuracy = points[points[:, 0] >= min(1.0, least)].T
        marker, line = _STYLES[name]
        axes.plot(
            coverage, accuracy, line, color=PALETTE[name], linewidth=1.8, label=name,
            marker=marker, markersize=4, markevery=0.2,
        )  # fmt: skip
    axes.axhline(0.5, color=PALETTE["muted"], linewidth=0.8, linestyle=":")
    axes.set_xlim(0, 1.01)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("share of clips answered, most confident first")
    axes.set_ylabel("accuracy on them")
    axes.legend(loc="lower right", ncols=2)
    return figure


def _figure(height_in: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH_IN, height_in), layout="constrained")


def _points(history: Sequence[Figures], field: str) -> Points:
    return [(record["step"], record[field]) for record in history if record.get(field) is not None]


def _draw_reward(axes: Axes, points: Points) -> None:
    _noisy_line(axes, points, "warm", "training batches")
    axes.set_ylabel("mean reward")


def _draw_accuracy(axes: Axes, points: Points, curve: Sequence[Figures]) -> None:
    _noisy_line(axes, points, "trained", "training batches")
    if curve:
        values = [point["accuracy"] for point in curve]
        axes.errorbar(
            [point["step"] for point in curve], values,
            yerr=_arms(values, [point["interval"] for point in curve]),
            fmt="D", color=PALETTE["ink"], markersize=5, elinewidth=1.2, capsize=3,
            markeredgecolor=PALETTE["paper"], label="held-out clips, 95 %", zorder=3,
        )  # fmt: skip
    axes.axhline(0.5, color=PALETTE["muted"], linewidth=0.8, linestyle=":")
    axes.set_ylim(0, 1)
    axes.set_ylabel("accuracy")
    axes.legend(loc="lower right")


def _noisy_line(axes: Axes, points: Points, role: str, label: str) -> None:
    """Every value thin, their running mean thick. An edge is averaged over what there is."""
    if not points:
        return
    steps, values = np.array(points, dtype=float).T
    window = np.ones(max(1, len(steps) // _SMOOTHED_SHARE))
    smooth = np.convolve(values, window, "same") / np.convolve(np.ones(len(steps)), window, "same")
    axes.plot(steps, values, color=PALETTE[role], linewidth=0.8, alpha=0.45)
    axes.plot(steps, smooth, color=PALETTE[role], linewidth=2, label=label)
    axes.grid(axis="y")


def _arms(values: Sequence[float], intervals: Sequence[Sequence[float]]) -> Any:
    """Error bars [2, n] as matplotlib wants them: distances below and above, never negative."""
    low, high = np.array(intervals, dtype=float).T
    return np.maximum(0, [np.array(values) - low, high - np.array(values)])


def _forest_row(axes: Axes, y: int, role: str, marker: str, row: Figures) -> None:
    if row["interval"] is not None:
        low, high = row["interval"]
        axes.plot([100 * low, 100 * high], [y, y], color=PALETTE[role], linewidth=1.6)
    found = row["verdict"] != NOT_DISTINGUISHABLE
    axes.plot(
        100 * row["difference"], y, marker, color=PALETTE[role], markersize=6,
        markeredgewidth=1.4, markerfacecolor=PALETTE[role if found else "paper"],
    )  # fmt: skip


def _cell(row: int, column: int, role: str, alpha: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(
        (column - 0.48, row - 0.46), 0.96, 0.92, facecolor=PALETTE[role], alpha=alpha, linewidth=0
    )
