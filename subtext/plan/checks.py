"""Checks gathered: every problem of a plan, and not only the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from subtext.errors import Problem, ProblemsError, PublishError, TrackingError

Found = TypeVar("Found")


class Findings:
    """Problems and warnings in the order in which they were found."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[str] = []

    def of(self, check: Callable[[], Found], asked: tuple[str, str] = ("", "")) -> Found | None:
        """Return what `check` returns; None, with its problems noted, where it refuses.

        `asked` names the variable that says which server is asked, and its value.
        """
        try:
            return check()
        except ProblemsError as error:
            self.add(error.problems)
        except (PublishError, TrackingError) as error:
            self.add([_unanswered(error, *asked)])
        return None

    def add(self, problems: Iterable[Problem]) -> None:
        """Note problems that are not noted yet."""
        self.problems += [each for each in problems if each not in self.problems]


def _unanswered(error: PublishError | TrackingError, field: str, value: str) -> Problem:
    """A server that gave no usable answer; the message of such an error ends in its remedy."""
    said, _, remedy = str(error).removeprefix(f"{field} = {value!r}: ").partition(". ")
    return Problem("environment", field, value, said, remedy or "Try again when it answers.")
