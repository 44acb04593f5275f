"""Reading a JSON data file so that everything wrong with its text is known at once.

`strict_json` stops at the first duplicate key or NaN, which is right for files that we wrote. A
data file is somebody's work to repair, so here they become problems with a place, and reading goes
on.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from subtext.errors import Problem, reason_of

_BYTE_ORDER_MARK = "\ufeff"

Locate = Callable[[tuple[str, ...]], tuple[str, str]]


class _Object(dict[str, Any]):
    """A JSON object that remembers which keys it was given more than once."""

    duplicates: tuple[str, ...] = ()


def read_json(path: Path, locate: Locate, problems: list[Problem]) -> Any:
    """Return the JSON value in the file, or None after adding a problem that prevents reading.

    Adds a problem for every duplicate key, number that is not finite and text that is not
    Unicode. `locate` turns the path of a value, keys from the root, into the problem's `where`
    and `field`.
    """
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no regular file")  # a pipe would never end
        text = path.read_bytes().decode("utf-8")
        if text.startswith(_BYTE_ORDER_MARK):
            remedy = "Save the file as UTF-8 without BOM."
            problems.append(_unreadable(path, "it starts with a byte order mark (BOM)", remedy))
            return None
        value = json.loads(text, object_pairs_hook=_object)
    except OSError as error:
        problems.append(_unreadable(path, reason_of(error), "Check path and rights."))
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 at byte {error.start}"
        problems.append(_unreadable(path, reason, "Save the file as UTF-8."))
    except ValueError as error:
        problems.append(_unreadable(path, f"not JSON: {error}", "Repair or download it again."))
    except RecursionError:
        problems.append(_unreadable(path, "nested too deeply", "Download it again."))
    else:
        problems += _text_problems(value, locate)
        return value
    return None


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    result = _Object(pairs)
    if len(result) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        result.duplicates = tuple(key for key, count in counts.items() if count > 1)
    return result


def _unreadable(path: Path, reason: str, remedy: str) -> Problem:
    return Problem(path.name, "file", str(path), f"can't be read: {reason}", remedy)


def _text_problems(root: Any, locate: Locate) -> Iterator[Problem]:
    pending: list[tuple[tuple[str, ...], Any]] = [((), root)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, _Object):
            for key in value.duplicates:
                where, field = locate((*path, key))
                yield Problem(where, field, key, "is a duplicate key", "Keep one of the two.")
            for key, item in value.items():
                if not is_unicode(key):
                    where, field = locate(path)
                    yield Problem(where, field, key, "is a key that is not Unicode", "Rename it.")
                else:
                    pending.append(((*path, key), item))
        elif isinstance(value, list):
            pending.extend(((*path, f"[{index}]"), item) for index, item in enumerate(value))
        elif isinstance(value, float) and not math.isfinite(value):
            where, field = locate(path)
            yield Problem(where, field, value, "is not a finite number", "Write null.")
        elif isinstance(value, str) and not is_unicode(value):
            where, field = locate(path)
            yield Problem(where, field, value, "holds half of a surrogate pair", "Repair the text.")


def shown_key(key: str) -> str:
    """Return a key as an error message can print it on one line."""
    return key if key.isprintable() else ascii(key)


def is_unicode(text: str) -> bool:
    """Whether `text` has no half of a surrogate pair, which UTF-8 and tokenizers refuse."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
