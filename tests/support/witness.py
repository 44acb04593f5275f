"""Loads models in a process of its own, and writes down which programs from their files ran.

`python -m support.witness ROOT` reads cases from its input, `{name: [kind, argument…]}`, and writes
`{name: {"said": outcome, "events": […]}}`. Kinds: `base FOLDER`, `hub REPOSITORY`, `judge MODEL`.
Everything hostile lies below ROOT, the Hub's cache too. The witness is Python's audit hook: a
pickle that names a function, code of a file that is compiled or run, a pickle that is opened.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PROGRAMS = (".bin", ".pkl", ".pickle", ".pt", ".py")
_PLANTED = ("planted", "transformers_modules")


class Witness:
    """Events since the last `taken`."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._events: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "pickle.find_class":
            self._events.append(f"{event} {arguments[0]}.{arguments[1]}")
        elif event == "exec":
            self._note_file(event, arguments[0].co_filename, (".py",))
        elif event == "compile" and isinstance(arguments[1], str | bytes):
            self._note_file(event, arguments[1], (".py",))
        elif event == "open":
            self._note_file(event, arguments[0], _PROGRAMS)
        elif event == "import" and str(arguments[0]).startswith(_PLANTED):
            self._events.append(f"{event} {arguments[0]}")

    def _note_file(self, event: str, name: Any, suffixes: tuple[str, ...]) -> None:
        path = name.decode() if isinstance(name, bytes) else str(name)
        if path.startswith(self._root) and path.endswith(suffixes):
            self._events.append(f"{event} {path}")

    def taken(self) -> list[str]:
        events, self._events = self._events, []
        return events


def main(root: Path) -> None:
    """Answer the cases on the input."""
    from subtext.policy.hush import hush_libraries

    hush_libraries()
    # What the libraries themselves import is no event.
    import peft  # noqa: F401
    import transformers  # noqa: F401

    witness = Witness(root)
    sys.addaudithook(witness)
    found = {}
    for name, (kind, *arguments) in json.loads(sys.stdin.read()).items():
        witness.taken()
        try:
            said = _KINDS[kind](*arguments)
        except Exception as error:  # a case that ends badly is told of like any other
            said = f"{type(error).__name__}: {error}"
        found[name] = {"said": said, "events": witness.taken()}
    print(json.dumps(found))


def _base(folder: str) -> str:
    return _loaded("path", folder)


def _hub(repository: str) -> str:
    return _loaded("hub", repository)


def _loaded(source: str, name: str) -> str:
    from jinja2.exceptions import SecurityError

    from subtext.config import ModelConfig
    from subtext.policy.base_model import resolve_base
    from subtext.policy.load import load_base, load_tokenizer
    from subtext.policy.precision import Precision

    base = resolve_base(ModelConfig.model_validate({"source": source, "name": name}))
    model = load_base(base, Precision("cpu", "float32", "none", ()))
    tokenizer = load_tokenizer(base)
    try:
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    except SecurityError as error:
        return f"SecurityError: {error}"
    inputs = tokenizer(prompt, return_tensors="pt")
    model.generate(**inputs, max_new_tokens=2, do_sample=False)
    return "loaded"


def _judge(model: str) -> str:
    from subtext.tracking import load_judge

    load_judge(model).judge([{"utterance": "Oh, great."}])
    return "loaded"


def _command(*arguments: str) -> str:
    from typer.testing import CliRunner

    from subtext.cli.main import app

    result = CliRunner().invoke(app, list(arguments))
    return f"{type(result.exception).__name__}: {result.exception}; {result.output}"


_KINDS: dict[str, Callable[..., str]] = {
    "base": _base,
    "hub": _hub,
    "judge": _judge,
    "command": _command,
}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
