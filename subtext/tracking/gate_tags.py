"""The gate's decision as tags `gate.…` of a registered version and its MLflow run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIX = "gate."

_DECISION = f"{PREFIX}decision"
_PASSED, _FAILED = "passed: ", "failed: "
_TEXT_CHARACTERS = 1000

Tags = Mapping[str, str]


def tags_of(gate: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags that say what gate.json holds: the decision, and each rule with its text."""
    reasons = {
        f"{PREFIX}{item['rule']}": (_PASSED if item["passed"] else _FAILED) + item["text"]
        for item in gate["reasons"]
    }
    return {_DECISION: gate["decision"]} | {
        key: text[:_TEXT_CHARACTERS] for key, text in reasons.items()
    }


def decision_in(tags: Tags) -> str | None:
    """Return what the gate decided on the version with `tags`; None where it never judged it."""
    return tags.get(_DECISION)


def failed_in(tags: Tags) -> list[str]:
    """Return the text of each rule that failed, by the rules' names."""
    return [
        text.removeprefix(_FAILED)
        for key, text in sorted(tags.items())
        if key.startswith(PREFIX) and text.startswith(_FAILED)
    ]
