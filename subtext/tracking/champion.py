"""The alias `champion`: who has it, how it moves, and how it moves back.

A move is on record before the alias moves, marked as pending until all of it is written. The next
call drops one that was cut off before the alias and completes one that was cut off after it, so to
repeat a move that was cut off makes it once. One process at a time moves the alias of a SQLite
store; on a server, two at once are found out by reading again what was written.

The newest move to a version is also its tags `champion.when`, `champion.previous` and so on;
`champion.by_gate` says that the gate promoted it once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from subtext.errors import TrackingError
from subtext.evaluation.gate import PROMOTE
from subtext.tracking.gate_tags import decision_in, failed_in
from subtext.tracking.lookup import aliased, has_store, open_store, registered, version_of
from subtext.tracking.moves import (
    GATE,
    HISTORY,
    Move,
    check_person,
    encoded,
    new_move,
    not_undone,
    read_history,
    settled,
)
from subtext.tracking.registry import ALIAS as CHALLENGER
from subtext.tracking.store import mlflow_errors, store_lock, tracking_uri

CHAMPION = "champion"

_BY_GATE = "champion.by_gate"


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
        return {**described, "history": settled(read_history(model), found[CHAMPION])}


def move_champion(name: str, version: int, who: str, why: str, force: bool = False) -> Move:
    """Point `champion` at `version` and return the entry that the history got.

    Refused without `force` for a version that the gate did not promote and that never was
    champion. Raises TrackingError.
    """
    check_person(who)
    with _alias(name) as alias:
        tags = version_of(alias.store, name, version).tags
        if alias.resumed and alias.resumed["to"] == version:
            return alias.resumed
        if alias.holder == version:
            raise TrackingError(f"version = {version}: is the champion of {name!r} already.")
        was_champion = "champion.when" in tags or version in {
            move["from"] for move in alias.history
        }
        earned = was_champion or decision_in(tags) == PROMOTE
        if not earned and not force:
            raise TrackingError(_unearned(version, tags))
        return alias.move(new_move(alias.holder, version, who, why, forced=not earned))


def undo_champion(name: str, who: str, why: str) -> Move:
    """Point `champion` back to where it was before its last move that was not undone yet.

    Returns the entry that the history got. Raises TrackingError.
    """
    check_person(who)
    with _alias(name) as alias:
        if alias.resumed and alias.resumed["undo"]:
            return alias.resumed
        standing = not_undone(alias.history)
        if not standing:
            raise TrackingError(f"The champion of {name!r} has no move to undo.")
        last = alias.history[-1]["to"]
        if alias.holder != last:
            raise TrackingError(
                f"champion = {_shown(alias.holder)}: the last move on record was to "
                f"{_shown(last)}, so the alias was moved by other means. "
                "Say where to: `subtext champion move VERSION --why TEXT`."
            )
        return alias.move(new_move(last, standing[-1]["from"], who, why, undo=True))


def promote(name: str, version: int, judged_against: int | None, why: str) -> str:
    """Point `champion` at `version` for the gate, once, and return "", or what stands against it.

    `judged_against`: the champion that the version was compared with. Who is champion is read here,
    just before the move: another run may have moved it meanwhile. A version promoted once is not
    promoted again, whatever happened to the alias since. Raises TrackingError.
    """
    with _alias(name) as alias:
        holder = alias.holder
        if holder == version or _BY_GATE in version_of(alias.store, name, version).tags:
            return ""
        if holder is not None and version < holder:
            return f"Version {version} is older than the champion, version {holder}."
        if holder != judged_against:
            return (
                f"The champion is {_shown(holder)} by now, and this version was judged beside "
                f"{_shown(judged_against)}."
            )
        alias.move(new_move(holder, version, GATE, why))
        return ""


@dataclass
class _Alias:
    """The alias of a registered model, held for one move: its `holder` and the moves so far.

    `resumed`: the last of them, where it had been cut off after the alias and was completed now.
    """

    store: Any
    name: str
    holder: int | None
    history: list[Move]
    resumed: Move | None = None

    def move(self, move: Move) -> Move:
        version = move["to"]
        if version is not None:
            version_of(self.store, self.name, version)
        pending = move.copy()
        pending["pending"] = True
        self._record([*self.history, pending])
        self._confirm([*self.history, pending], move["from"])
        _point(self.store, self.name, version)
        self.complete([*self.history, move])
        return move

    def complete(self, history: list[Move]) -> None:
        """Write what follows a move of the alias: the version's tags and the history."""
        version = history[-1]["to"]
        if version is not None:
            for key, value in _tags(history[-1]).items():
                self.store.set_model_version_tag(self.name, str(version), key, value)
        self._record(history)
        self._confirm(history, version)

    def _record(self, history: list[Move]) -> None:
        self.store.set_registered_model_tag(self.name, HISTORY, encoded(history))

    def _confirm(self, history: list[Move], holder: int | None) -> None:
        model = _model(self.store, self.name)
        if aliased(model, CHAMPION) != holder or model.tags.get(HISTORY) != encoded(history):
            raise TrackingError(
                f"The champion of {self.name!r} was moved by someone else at the same time. "
                "See `subtext champion show`, then repeat the move if it still holds."
            )


@contextmanager
def _alias(name: str) -> Iterator[_Alias]:
    """The alias of the registered model `name`, whose last move happened or is forgotten."""
    with mlflow_errors(f"move the champion of {name}"):
        store = open_store()
        with store_lock(tracking_uri()):
            model = _model(store, name)
            recorded, holder = read_history(model), aliased(model, CHAMPION)
            alias = _Alias(store, name, holder, settled(recorded, holder))
            if len(alias.history) == len(recorded) and alias.history != recorded:
                alias.complete(alias.history)
                alias.resumed = alias.history[-1]
            yield alias


def _tags(move: Move) -> dict[str, str]:
    values = {
        "when": move["when"],
        "previous": json.dumps(move["from"]),
        "who": move["who"],
        "why": move["why"],
        "forced": json.dumps(move["forced"]),
        "undo": json.dumps(move["undo"]),
    }
    by_gate = {_BY_GATE: "true"} if move["who"] == GATE else {}
    return {f"champion.{key}": value for key, value in values.items()} | by_gate


def _point(store: Any, name: str, version: int | None) -> None:
    if version is None:
        store.delete_registered_model_alias(name, CHAMPION)
    else:
        store.set_registered_model_alias(name, CHAMPION, str(version))


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


def _shown(version: int | None) -> str:
    return "none" if version is None else f"version {version}"
