"""The moves of the alias `champion`, as a tag of the registered model keeps them.

The tag `champion.history` is a JSON list, oldest first. An entry has `when` (UTC), `from` and `to`
(versions; null: none), `who`, `why`, `forced` and `undo`. While its move is under way it also has
`pending`: one that was cut off before it reached the alias did not happen.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NotRequired

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic takes typing's own only from Python 3.12 on

from subtext.errors import TrackingError

HISTORY = "champion.history"
GATE = "the gate"
"""Who moves the alias where no person does."""

_HISTORY_CHARACTERS = 4_500  # MLflow's column holds 5,000
_KEPT_AT_LEAST = 2
_WHO_CHARACTERS, _WHY_CHARACTERS = 100, 500
_CONTROL = {"Cc", "Cs", "Zl", "Zp"}  # Unicode: control, half a character, ends of line

Move = TypedDict(
    "Move",
    {
        "when": str,
        "from": int | None,
        "to": int | None,
        "who": str,
        "why": str,
        "forced": bool,
        "undo": bool,
        "pending": NotRequired[bool],
    },
)


def new_move(
    before: int | None,
    after: int | None,
    who: str,
    why: str,
    forced: bool = False,
    undo: bool = False,
) -> Move:
    """Return a move as of now. Raises TrackingError for a `who` or `why` that can't be kept."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "from": before,
        "to": after,
        "who": _said("who", who, _WHO_CHARACTERS),
        "why": _said("why", why, _WHY_CHARACTERS),
        "forced": forced,
        "undo": undo,
    }


def check_person(who: str) -> None:
    """Raise TrackingError where a person signs as the gate."""
    if " ".join(who.split()).casefold() == GATE:
        raise TrackingError(f"who = {who!r}: is how the gate signs. Give a person's name.")


def read_history(model: Any) -> list[Move]:
    """Return the moves in the tags of a registered model.

    Raises TrackingError where the tag holds something else.
    """
    text = model.tags.get(HISTORY, "[]")
    try:
        return TypeAdapter(list[Move]).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise TrackingError(
            f"{HISTORY} = {text[:80]!r}: this tag of the registered model {model.name!r} holds no "
            f"list of moves ({f'{place}: ' if place else ''}{first['msg']}). Delete the tag, in "
            "MLflow's pages or with delete_registered_model_tag; the alias stays where it is."
        ) from error


def settled(history: Sequence[Move], holder: int | None) -> list[Move]:
    """Return the moves that happened, where `holder` is champion now."""
    if not history or "pending" not in history[-1]:
        return list(history)
    *before, last = history
    return [*before, finished(last)] if last["to"] == holder else before


def finished(move: Move) -> Move:
    """Return `move` as one that reached the alias."""
    done = move.copy()
    done.pop("pending", None)
    return done


def encoded(history: Sequence[Move]) -> str:
    """Return the tag's text: without the oldest moves where all are too many, but the last two."""
    kept = list(history)
    while len(text := json.dumps(kept, ensure_ascii=False)) > _HISTORY_CHARACTERS:
        if len(kept) <= _KEPT_AT_LEAST:
            break
        del kept[0]
    return text


def not_undone(history: Sequence[Move]) -> list[Move]:
    """Return the moves that no later undo took back."""
    standing: list[Move] = []
    for move in history:
        if not move["undo"]:
            standing.append(move)
        elif standing:  # the move may be older than what is kept
            standing.pop()
    return standing


def _said(field: str, text: str, limit: int) -> str:
    text = text.strip()
    if not text or len(text) > limit:
        raise TrackingError(
            f"{field} = {text[:80]!r}: is empty or longer than {limit} characters. "
            "Say it in a sentence; it stays on record."
        )
    if any(unicodedata.category(character) in _CONTROL for character in text):
        raise TrackingError(
            f"{field} = {text[:80]!r}: has control characters or several lines. Use one line."
        )
    return text
