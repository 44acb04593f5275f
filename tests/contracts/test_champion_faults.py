"""Moves of the champion that are cut off, that meet, or that find a spoilt history.

Bare versions in a SQLite store of MLflow: no move looks into what a version holds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest

from subtext import tracking
from subtext.errors import TrackingError
from subtext.tracking import champion as champion_module
from subtext.tracking.champion import promote
from subtext.tracking.moves import GATE, encoded, new_move
from subtext.tracking.store import client

NAME = "subtext"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the versions 1 to 4, none of which is champion."""
    folder = tmp_path_factory.mktemp("template")
    store = client(f"sqlite:///{folder}/mlflow.db")
    store.create_registered_model(NAME)
    for _ in range(4):
        store.create_model_version(NAME, f"file://{folder}/model")
    return folder / "mlflow.db"


@pytest.fixture
def store(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mlflow.MlflowClient:
    uri = f"sqlite:///{shutil.copy(template, tmp_path / 'mlflow.db')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return client(uri)


def holder(store: mlflow.MlflowClient) -> int | None:
    alias = store.get_registered_model(NAME).aliases.get("champion")
    return None if alias is None else int(alias)


def history(store: mlflow.MlflowClient) -> list[dict[str, Any]]:
    return json.loads(store.get_registered_model(NAME).tags.get("champion.history", "[]"))


def tags(store: mlflow.MlflowClient, version: int) -> dict[str, str]:
    return dict(store.get_model_version(NAME, str(version)).tags)


def moves(store: mlflow.MlflowClient) -> list[tuple[int | None, int | None]]:
    return [(move["from"], move["to"]) for move in history(store)]


class Killed(BaseException):
    pass


def cut_off(monkeypatch: pytest.MonkeyPatch, at: str, act: Callable[[], object]) -> None:
    """Call `act`, killed `before` the alias moves or right `after` it."""
    point = champion_module._point

    def killed(*arguments: Any) -> None:
        if at == "after":
            point(*arguments)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(champion_module, "_point", killed)
        act()


class TestCutOff:
    @pytest.mark.parametrize("at", ["before", "after"])
    def test_a_promotion_is_finished_by_its_rerun(
        self, store: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch, at: str
    ) -> None:
        cut_off(monkeypatch, at, lambda: promote(NAME, 1, None, "run 1"))
        assert tags(store, 1) == {}
        assert promote(NAME, 1, None, "run 1") == ""
        assert holder(store) == 1
        [move] = history(store)
        assert (move["to"], move["who"], "pending" in move) == (1, GATE, False)
        assert tags(store, 1) == {
            "champion.when": move["when"], "champion.previous": "null", "champion.who": GATE,
            "champion.why": "run 1", "champion.forced": "false", "champion.undo": "false",
            "champion.by_gate": "true",
        }  # fmt: skip

    @pytest.mark.parametrize("at", ["before", "after"])
    def test_an_undo_is_made_once(
        self, store: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch, at: str
    ) -> None:
        for version in (1, 2, 3):
            tracking.move_champion(NAME, version, "Ada", "x", force=True)
        cut_off(monkeypatch, at, lambda: tracking.undo_champion(NAME, "Ada", "back"))
        assert len(tracking.champion_overview(NAME)["history"]) == (3 if at == "before" else 4)
        assert tracking.undo_champion(NAME, "Ada", "back")["to"] == 2
        assert moves(store) == [(None, 1), (1, 2), (2, 3), (3, 2)]
        assert holder(store) == 2
        assert tracking.undo_champion(NAME, "Ada", "back")["to"] == 1

    @pytest.mark.parametrize("at", ["before", "after"])
    def test_a_forced_move_is_made_once(
        self, store: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch, at: str
    ) -> None:
        def move() -> dict[str, Any]:
            return dict(tracking.move_champion(NAME, 3, "Ada", "x", force=True))

        cut_off(monkeypatch, at, move)
        made = move()
        assert made["forced"] is True
        assert history(store) == [made]
        assert holder(store) == 3
        assert tags(store, 3)["champion.forced"] == "true"

    def test_a_forced_move_that_did_not_happen_earns_nothing(
        self, store: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cut_off(
            monkeypatch, "before", lambda: tracking.move_champion(NAME, 3, "Ada", "x", force=True)
        )
        with pytest.raises(TrackingError, match="never was champion"):
            tracking.move_champion(NAME, 3, "Ada", "x")
        assert holder(store) is None

    def test_a_forced_move_that_reached_the_alias_is_completed_first(
        self, store: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cut_off(
            monkeypatch, "after", lambda: tracking.move_champion(NAME, 3, "Ada", "x", force=True)
        )
        assert tracking.undo_champion(NAME, "Bob", "no")["to"] is None
        assert moves(store) == [(None, 3), (3, None)]
        assert tags(store, 3)["champion.who"] == "Ada"


def processes(tmp_path: Path, programs: list[str]) -> list[list[str]]:
    """Run programs at once, each in a process of its own; return the lines that each printed."""
    start = (
        "import sys, time; from pathlib import Path\n"
        "from subtext.errors import TrackingError\n"
        "from subtext.tracking.champion import move_champion, promote\n"
        "from subtext.tracking.lookup import open_store\n"
        "open_store(); Path(sys.argv[1]).touch()\n"
        "while not Path('go').exists(): time.sleep(0.01)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", start + program, f"ready{number}"],
            cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True,
        )
        for number, program in enumerate(programs)
    ]  # fmt: skip
    while len(list(tmp_path.glob("ready*"))) < len(programs):
        assert all(process.poll() is None for process in started)
        time.sleep(0.05)
    (tmp_path / "go").touch()
    printed = [process.communicate(timeout=120)[0].splitlines() for process in started]
    assert [process.returncode for process in started] == [0] * len(programs)
    return printed


class TestTwoAtOnce:
    def test_no_forced_move_is_lost(self, store: mlflow.MlflowClient, tmp_path: Path) -> None:
        program = (
            "for version in 3 * {pair}:\n"
            f"    move_champion({NAME!r}, version, 'Ada', 'x', force=True)\n"
        )
        processes(tmp_path, [program.format(pair=pair) for pair in ((1, 2), (3, 4))])
        made = moves(store)
        assert sorted(to for _, to in made) == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
        assert [before for before, _ in made] == [None, *(to for _, to in made[:-1])]
        assert holder(store) == made[-1][1]

    def test_one_gate_of_two_promotes(self, store: mlflow.MlflowClient, tmp_path: Path) -> None:
        program = f"print(promote({NAME!r}, {{}}, None, 'x'))"
        said = processes(tmp_path, [program.format(version) for version in (1, 2)])
        assert sorted(line != "" for [line] in said) == [False, True]
        assert moves(store) == [(None, holder(store))]

    @pytest.mark.parametrize("what", ["alias", "history"])
    def test_on_a_server_it_is_found_out(
        self, store: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        point = champion_module._point

        def someone_else(*arguments: Any) -> None:
            point(*arguments)
            if what == "alias":
                store.set_registered_model_alias(NAME, "champion", "4")
            else:
                monkeypatch.setattr(champion_module._Alias, "_record", lambda *_: None)

        monkeypatch.setattr(champion_module, "_point", someone_else)
        with pytest.raises(TrackingError, match="by someone else at the same time"):
            promote(NAME, 1, None, "x")

    def test_an_entry_that_is_gone_again_stops_the_move_before_the_alias(
        self, store: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record = champion_module._Alias._record

        def overwritten(alias: Any, moves: Any) -> None:
            record(alias, moves)
            store.set_registered_model_tag(NAME, "champion.history", "[]")

        monkeypatch.setattr(champion_module._Alias, "_record", overwritten)
        with pytest.raises(TrackingError, match="by someone else at the same time"):
            promote(NAME, 1, None, "x")
        assert holder(store) is None


class TestHistory:
    def test_it_stays_within_mlflows_column_and_champions_stay_known(
        self, store: mlflow.MlflowClient
    ) -> None:
        for version in (1, *(5 * (2, 3))):
            tracking.move_champion(NAME, version, "A" * 100, '"' * 500, force=True)
        text = store.get_registered_model(NAME).tags["champion.history"]
        assert len(text) < 4500
        assert moves(store)[-2:] == [(3, 2), (2, 3)]
        assert (None, 1) not in moves(store)
        assert tracking.move_champion(NAME, 1, "Ada", "was it before")["forced"] is False
        assert tracking.undo_champion(NAME, "Ada", "back")["to"] == 3

    def test_the_gate_does_not_repeat_a_promotion_that_is_no_longer_on_record(
        self, store: mlflow.MlflowClient
    ) -> None:
        assert promote(NAME, 1, None, "x") == ""
        tracking.undo_champion(NAME, "Ada", "no")
        store.delete_registered_model_tag(NAME, "champion.history")
        assert promote(NAME, 1, None, "x") == ""
        assert holder(store) is None

    def test_the_longest_two_entries_always_fit(self) -> None:
        moves = [new_move(10**9, 10**9, "\\" * 100, "\\" * 500, undo=True) for _ in range(9)]
        kept = encoded(moves)
        assert len(kept) < 4500
        assert len(json.loads(kept)) >= 2

    @pytest.mark.parametrize(
        "spoilt",
        [
            pytest.param("junk", id="no-json"),
            pytest.param("", id="empty"),
            pytest.param("{}", id="no-list"),
            pytest.param("[1]", id="no-move"),
            pytest.param('[{"to": 1}]', id="half-a-move"),
            pytest.param(
                json.dumps([{**new_move(1, 2, "a", "b"), "to": "2"}]), id="text-for-a-number"
            ),
            pytest.param("[" * 4000, id="deep"),
        ],
    )
    def test_a_spoilt_one_is_named_with_its_remedy(
        self, store: mlflow.MlflowClient, spoilt: str
    ) -> None:
        store.set_registered_model_tag(NAME, "champion.history", spoilt)
        acts: list[Callable[[], object]] = [
            lambda: tracking.champion_overview(NAME),
            lambda: tracking.undo_champion(NAME, "Ada", "x"),
            lambda: tracking.move_champion(NAME, 2, "Ada", "x", force=True),
            lambda: promote(NAME, 2, None, "x"),
        ]
        for act in acts:
            with pytest.raises(TrackingError, match=r"champion\.history = .*Delete the tag"):
                act()
        store.delete_registered_model_tag(NAME, "champion.history")
        assert promote(NAME, 2, None, "x") == ""
