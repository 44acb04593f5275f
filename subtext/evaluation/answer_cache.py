"""Answers that were generated before, kept in a SQLite file that several evaluations share.

A key stands for everything that an answer depends on (`subtext.evaluation.generate` makes it); the
first answer written under a key is the one that every later evaluation reads. A batch is
written in one transaction, so a process that is killed leaves whole batches.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from subtext.errors import EvaluationError, Problem, reason_of

logger = logging.getLogger(__name__)

_WAIT_S = 60.0
_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, text TEXT NOT NULL, ended INTEGER NOT NULL, n_tokens INTEGER NOT NULL
) WITHOUT ROWID
"""
_FIND = "SELECT text, ended, n_tokens FROM answers WHERE key = ?"
_ADD = "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)"
_BROKEN = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


@dataclass(frozen=True)
class Answer:
    """One completion. `ended`: the model closed its turn itself, before the limit and right
    after what it wrote. `n_tokens` counts generated tokens, the end token included."""

    text: str
    ended: bool
    n_tokens: int


class AnswerCache:
    """Answers by key, on disk. A context manager; two processes may hold the same file.

    What is no database is moved aside, to `<name>.broken`, and a new file is begun. Every method
    raises EvaluationError where the file can't be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._connection = _opened(path)
            except _NoDatabaseError:
                _move_aside(path)
                self._connection = _opened(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def recall(self, keys: Sequence[str], generate: Callable[[], list[Answer]]) -> list[Answer]:
        """Return the answers under `keys`. Where one is missing, `generate` gives them all, in the
        order of `keys`, and those that were missing are kept, all or none."""
        known = self._find(keys)
        if len(known) < len(set(keys)):
            self._add(dict(zip(keys, generate(), strict=True)))
            # Another process may have been first meanwhile.
            known = self._find(keys)
        return [known[key] for key in keys]

    def _find(self, keys: Sequence[str]) -> dict[str, Answer]:
        with self._explained():
            rows = {key: self._connection.execute(_FIND, [key]).fetchone() for key in keys}
        return {
            key: Answer(text=row[0], ended=bool(row[1]), n_tokens=row[2])
            for key, row in rows.items()
            if row
        }

    def _add(self, answers: Mapping[str, Answer]) -> None:
        rows = [
            (key, answer.text, answer.ended, answer.n_tokens) for key, answer in answers.items()
        ]
        with self._explained(), self._connection:
            self._connection.executemany(_ADD, rows)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            problem = Problem(
                str(self._path), "answers", None,
                f"can't keep answers ({reason_of(error)})",
                "Make room in its folder and let it be written to, or delete the file.",
            )  # fmt: skip
            raise EvaluationError(str(problem)) from error


class _NoDatabaseError(Exception):
    """The file is damaged, or something else."""


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_WAIT_S)
    try:
        if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise _NoDatabaseError
        connection.execute(_TABLE)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.DatabaseError) and error.sqlite_errorcode in _BROKEN:
            raise _NoDatabaseError from error
        raise
    return connection


def _move_aside(path: Path) -> None:
    aside = path.with_name(f"{path.name}.broken")
    # SQLite would play a journal left behind into the new file.
    path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
    path.replace(aside)
    logger.warning(
        "%s was no whole database and is now %s: answers are generated anew", path, aside.name
    )
