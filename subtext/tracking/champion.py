"""The alias `champion`: who has it, how it moves, and how it moves back.

Every move is an entry of a JSON list in the tag `champion.history` of the registered model: `when`
(UTC), `from` and `to` (versions; null: none), `who`, `why`, `forced`, `undo`. It is written before
the alias moves, so that a move that was cut off is known and finished. The newest version moved to
keeps its entry as tags `champion.when`, `champion.previous` and so on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from subtext.errors import TrackingError
from subtext.evaluation.gate import PROMOTE
from subtext.tracking.gate_tags import decision_in, failed_in
from subtext.tracking.lookup import aliased, has_store, open_store, registered, version_of
from subtext.tracking.registry import ALIAS as CHALLENGER
from subtext.tracking.store import mlflow_errors, tracking_uri

CHAMPION = "champion"
GATE = "the gate"
"""Who moves the alias where no person does."""

_HISTORY = "champion.history"
_KEPT_MOVES = 100  # of at most some 700 characters, in a tag that holds 100,000
_WHY_CHARACTERS = 500

Move = dict[str, Any]


def current_champion(name: str) -> dict[str, Any] | None:
    """Return the champion, or None: `version`, `uri`, `run_id` (MLflow's), `run_name`, and of the
    gate the `decision` (None where it never judged it) and the texts of the rules that `failed`.

    Raises TrackingError.
    """
    if not has_store(tracking_uri()):
        return None
    with mlflow_errors(f"look up the champion of {name}"):
        store = open_store()
        version = aliased(registered(store, name), CHAMPION)
        return None if version is None else _described(store, name, version)


def champion_overview(name: str) -> dict[str, Any]:
    """Return `champion` and `challenger` (as `current_champion`; None where no version has the
    alias) and the `history` of moves, oldest first.

    Raises TrackingError, also where there is no such registered model.
    """
    with mlflow_errors(f"look up the champion of {name}"):
        store = open_store()
        model = _model(store, name)
        found = {alias: aliased(model, alias) for alias in (CHAMPION, CHALLENGER)}
        described = {
            alias: None if version is None else _described(store, name, version)
            for alias, version in found.items()
        }
        return {**described, "history": _history(model)}


def move_champion(name: str, version: int, who: str, why: str, force: bool = False) -> Move:
    """Point `champion` at `version` and return the entry that the history got.

    Refused without `force` for a version that the gate did not promote and that never was
    champion. Raises TrackingError.
    """
    with mlflow_errors(f"move the champion of {name}"):
        store = open_store()
        model = _model(store, name)
        found = version_of(store, name, version)
        history = _history(model)
        if aliased(model, CHAMPION) == version:
            raise TrackingError(f"version = {version}: is the champion of {name!r} already.")
        was_champion = version in {move[key] for move in history for key in ("from", "to")}
        earned = was_champion or decision_in(found.tags) == PROMOTE
        if not earned and not force:
            raise TrackingError(_unearned(version, found.tags))
        return _move(store, name, model, version, who, why, forced=not earned)


def undo_champion(name: str, who: str, why: str) -> Move:
    """Point `champion` back to where it was before its last move that was not undone yet.

    Returns the entry that the history got. Raises TrackingError.
    """
    with mlflow_errors(f"move the champion of {name} back"):
        store = open_store()
        model = _model(store, name)
        history, holder = _history(model), aliased(model, CHAMPION)
        standing = _not_undone(history)
        if not standing:
            raise TrackingError(f"The champion of {name!r} has no move to undo.")
        if holder != history[-1]["to"]:
            raise TrackingError(
                f"champion = {_shown(holder)}: the last move on record was to "
                f"{_shown(history[-1]['to'])}, so the alias was moved by other means. "
                "Say where to: `subtext champion move VERSION --why TEXT`."
            )
        return _move(store, name, model, standing[-1]["from"], who, why, undo=True)


def promote(name: str, version: int, judged_against: int | None, why: str) -> str:
    """Point `champion` at `version` for the gate, once, and return "", or what stands against it.

    `judged_against`: the champion that the version was compared with. Who is champion is read here,
    just before the move: another run may have moved it meanwhile. A version promoted once is not
    promoted again, whatever happened to the alias since. Raises TrackingError.
    """
    with mlflow_errors(f"promote version {version} of {name}"):
        store = open_store()
        model = _model(store, name)
        history, holder = _history(model), aliased(model, CHAMPION)
        if any(move["to"] == version and move["who"] == GATE for move in history):
            if history[-1]["to"] == version and holder == history[-1]["from"]:
                _point(store, name, version)  # cut off between history and alias
            return ""
        if holder == version:
            return ""
        if holder is not None and version < holder:
            return f"Version {version} is older than the champion, version {holder}."
        if holder != judged_against:
            return (
                f"The champion is {_shown(holder)} by now, and this version was judged beside "
                f"{_shown(judged_against)}."
            )
        _move(store, name, model, version, GATE, why)
        return ""


def _move(
    store: Any,
    name: str,
    model: Any,
    version: int | None,
    who: str,
    why: str,
    *,
    forced: bool = False,
    undo: bool = False,
) -> Move:
    move = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "from": aliased(model, CHAMPION),
        "to": version,
        "who": _said("who", who),
        "why": _said("why", why),
        "forced": forced,
        "undo": undo,
    }
    if version is not None:
        version_of(store, name, version)
    history = [*_history(model), move][-_KEPT_MOVES:]
    store.set_registered_model_tag(name, _HISTORY, json.dumps(history, ensure_ascii=False))
    if version is not None:
        tags = {("previous" if key == "from" else key): value for key, value in move.items()}
        for key in ("when", "previous", "who", "why", "forced", "undo"):
            value = tags[key] if isinstance(tags[key], str) else json.dumps(tags[key])
            store.set_model_version_tag(name, str(version), f"champion.{key}", value)
    _point(store, name, version)
    return move


def _point(store: Any, name: str, version: int | None) -> None:
    if version is None:
        store.delete_registered_model_alias(name, CHAMPION)
    else:
        store.set_registered_model_alias(name, CHAMPION, str(version))


def _not_undone(history: Sequence[Move]) -> list[Move]:
    standing: list[Move] = []
    for move in history:
        if not move["undo"]:
            standing.append(move)
        elif standing:  # the move may be older than what is kept
            standing.pop()
    return standing


def _history(model: Any) -> list[Move]:
    history: list[Move] = json.loads(model.tags.get(_HISTORY, "[]"))
    return history


def _model(store: Any, name: str) -> Any:
    model = registered(store, name)
    if model is None:
        raise TrackingError(
            f"name = {name!r}: is no registered model of this store. Train a run first, or give "
            "the name in its tracking.registered_model."
        )
    return model


def _described(store: Any, name: str, version: int) -> dict[str, Any]:
    found = version_of(store, name, version)
    return {
        "version": version,
        "uri": f"models:/{name}/{version}",
        "run_id": found.run_id,
        "run_name": found.tags.get("run_id", ""),
        "decision": decision_in(found.tags),
        "failed": failed_in(found.tags),
    }


def _unearned(version: int, tags: dict[str, str]) -> str:
    said = "; ".join(text.rstrip(".") for text in failed_in(tags))
    return (
        f"version = {version}: the gate did not promote it ({said or 'it never judged it'}), and "
        "it never was champion. Choose another version, or repeat with --force: who and why are "
        "then on record."
    )


def _said(field: str, text: str) -> str:
    if not text.strip() or len(text) > _WHY_CHARACTERS:
        raise TrackingError(
            f"{field} = {text[:80]!r}: is empty or longer than {_WHY_CHARACTERS} characters. "
            "Say it in a sentence; it stays on record."
        )
    return text.strip()


def _shown(version: int | None) -> str:
    return "none" if version is None else f"version {version}"
