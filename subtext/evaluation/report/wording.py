"""How figures read on the page. What is not there reads "–", whatever the figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

NONE = "–"
_MINUS = "−"

Interval = Sequence[float | None] | None


def percent(value: float | None) -> str:
    """0.6621 -> "66.2", where the unit stands in the table's head."""
    return NONE if value is None else f"{100 * value:.1f}"


def share(value: float | None) -> str:
    """0.6621 -> "66.2 %"."""
    return NONE if value is None else f"{percent(value)}\u202f%"


def number(value: float | None, digits: int = 3) -> str:
    """0.2466 -> "0.247"; whole numbers without a fraction."""
    if value is None:
        return NONE
    return (str(value) if isinstance(value, int) else f"{value:z.{digits}f}").replace("-", _MINUS)


def points(value: float | None) -> str:
    """A difference of shares, signed: 0.056 -> "+5.6"."""
    return NONE if value is None else f"{100 * value:+z.1f}".replace("-", _MINUS)


def share_interval(interval: Interval) -> str:
    """[0.546, 0.761] -> "54.6 to 76.1"."""
    return _joined(interval, percent)


def number_interval(interval: Interval) -> str:
    """[0.21, 0.29] -> "0.210 to 0.290"."""
    return _joined(interval, lambda bound: number(float(bound)))


def points_interval(interval: Interval) -> str:
    """[-0.1, 0.21] -> "−10.0 to +21.0"."""
    return _joined(interval, points)


def p_value(value: float | None) -> str:
    """0.0312 -> "0.031"; below one in a thousand "< 0.001"."""
    if value is None:
        return NONE
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def title(name: str) -> str:
    """no_learning_signal -> "No learning signal"."""
    return name.replace("_", " ").capitalize()


def counted(n: int, noun: str) -> str:
    """(1, "alarm") -> "1 alarm", (2, "alarm") -> "2 alarms"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def bar(interval: Sequence[float]) -> dict[str, str]:
    """Left edge and width of an interval of shares, in percent of its axis."""
    low, high = interval
    return {"left": f"{100 * low:.1f}", "width": f"{100 * (high - low):.1f}"}


def ordered(parts: Mapping[str, Any], names: Sequence[str]) -> list[tuple[str, Any]]:
    """The items of `parts` in the order of `names`, then those that it lacks."""
    known = [(name, parts[name]) for name in names if name in parts]
    return known + [item for item in sorted(parts.items()) if item[0] not in names]


def _joined(interval: Interval, shown: Callable[[float], str]) -> str:
    bounds = [bound for bound in interval or () if bound is not None]
    return " to ".join(map(shown, bounds)) if len(bounds) == 2 else NONE


FILTERS: dict[str, Callable[..., Any]] = {
    "share": share,
    "percent": percent,
    "number": number,
    "points": points,
    "share_interval": share_interval,
    "number_interval": number_interval,
    "points_interval": points_interval,
    "p_value": p_value,
    "title_of": title,
    "counted": counted,
    "bar": bar,
    "ordered": ordered,
}

FIGURES = (
    ("Accuracy", "accuracy", "share", "accuracy_interval"),
    ("F1, weighted", "f1_weighted", "number", "f1_weighted_interval"),
    ("Precision, weighted", "precision_weighted", "number", None),
    ("Recall, weighted", "recall_weighted", "number", None),
    ("F1, macro", "f1_macro", "number", "f1_macro_interval"),
    ("Precision, macro", "precision_macro", "number", None),
    ("Recall, macro", "recall_macro", "number", None),
    ("Well-formed, strict", "strict_rate", "share", "strict_interval"),
    ("Well-formed, lenient", "well_formed_rate", "share", "well_formed_interval"),
    ("Mean reward", "mean_reward", "number", "mean_reward_interval"),
    ("Brier score, lower is better", "brier", "number", "brier_interval"),
    ("Brier skill against 0.25", "brier_skill", "number", None),
    ("Log loss, P clipped to 0.01–0.99", "log_loss", "number", None),
    ("AUROC of P(sarcastic)", "auroc", "number", "auroc_interval"),
    ("AUROC of confidence, right against wrong", "auroc_confidence", "number", None),
    ("ECE", "ece", "number", None),
    ("ECE of a perfectly calibrated policy, mean", "ece_null_mean", "number", None),
    ("ECE of a perfectly calibrated policy, 95th percentile", "ece_null_95", "number", None),
    ("Accuracy at 50 % coverage", "accuracy_at_50", "share", None),
    ("Accuracy at 80 % coverage", "accuracy_at_80", "share", None),
    ("AURC, lower is better", "aurc", "number", None),
    ("Mean confidence", "mean_confidence", "number", None),
    ("Distinct confidences", "n_distinct_confidences", "number", None),
    ("Mean tokens", "mean_tokens", "number", None),
    ("Clips judged", "n_eval_clips", "number", None),
    ("of them with prosody", "n_with_prosody", "number", None),
)
"""Label, key, filter and key of the interval: every figure of a pass, in the order of the table."""
