"""Foreign text on its way to a terminal, a log or a page: its commands are shown, not obeyed."""

from __future__ import annotations

import re

# Control characters but tab and line break: with them a text moves the cursor, rewrites the screen,
# sets the clipboard. Then those that turn the direction of what follows, and halves of surrogate
# pairs, which no stream takes.
_COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return `text` with every such character written as its escape, `\\x1b` for example."""
    return _COMMANDS.sub(lambda found: ascii(found.group())[1:-1], text)
