"""Every error that Subtext raises on purpose.

A message names the field, shows the value and gives the remedy. Entry points catch
`SubtextError`, print it and exit with code 2; anything else is a defect and keeps its
traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_SHOWN_PROBLEMS = 20
_SHOWN_CHARACTERS = 120


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one value.

    `where` is a file, a clip or a section ("sarcasm_data.json, clip 1_60"), `field` the
    dotted name inside it, `value` what was found.
    """

    where: str
    field: str
    value: object
    problem: str
    remedy: str

    def __str__(self) -> str:
        shown = repr(self.value)
        if len(shown) > _SHOWN_CHARACTERS:
            shown = shown[: _SHOWN_CHARACTERS - 1] + "…"
        return f"{self.where}: {self.field} = {shown}: {self.problem}. {self.remedy}"


def reason_of(error: Exception) -> str:
    """Return what the system or a parser says is wrong, without an OSError's number and path."""
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


class SubtextError(Exception):
    """Base of all errors below."""


class ProblemsError(SubtextError):
    """An error that gathers every problem found, not only the first."""

    def __init__(self, title: str, problems: Sequence[Problem]) -> None:
        self.title = title
        self.problems = tuple(problems)
        lines = [f"{title}: {len(self.problems)} problem(s)"]
        lines += [f"  - {problem}" for problem in self.problems[:_SHOWN_PROBLEMS]]
        hidden = len(self.problems) - _SHOWN_PROBLEMS
        if hidden > 0:
            lines.append(f"  … and {hidden} more")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[ProblemsError], tuple[str, tuple[Problem, ...]]]:
        # Prefect pickles exceptions between processes; the default would lose `problems`.
        return type(self), (self.title, self.problems)


class ConfigError(ProblemsError):
    """A configuration that cannot work: unknown key, value out of range, fields at odds."""


class DataError(ProblemsError):
    """Scenario, prosody or track files that do not hold what they must."""


class DownloadError(DataError):
    """A download failed. `retryable` says whether another try can help."""

    def __init__(self, title: str, problems: Sequence[Problem], *, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(title, problems)

    def __reduce__(self) -> Any:
        return _download_error, (self.title, self.problems, self.retryable)


class MachineError(ProblemsError):
    """The run asks for something this machine lacks: a GPU, a package, a token."""


class TrainingError(SubtextError):
    """Training stopped for a reason that the message names."""


class TrainingStoppedError(TrainingError):
    """An alarm stopped training before its last step; what was trained until then is saved."""


class EvaluationError(SubtextError):
    """Judging held-out clips did not finish; finished records stay on disk."""


class TrackingError(SubtextError):
    """MLflow could not be reached or refused what was sent."""


class PublishError(SubtextError):
    """An upload to the Hub failed. `retryable` says whether another try can help."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        self.retryable = retryable
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return _publish_error, (str(self), self.retryable)


def _publish_error(message: str, retryable: bool) -> PublishError:
    return PublishError(message, retryable=retryable)


def _download_error(title: str, problems: Sequence[Problem], retryable: bool) -> DownloadError:
    return DownloadError(title, problems, retryable=retryable)
