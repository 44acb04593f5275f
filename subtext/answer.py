"""The answer grammar, and the only code that reads it.

    <think>reasoning</think>
    <final>{"label":"sarcastic"|"sincere","confidence":0.0..1.0}</final>

The accepted language is that of two regular expressions with DOTALL,
`<final>\\s*(\\{.*?\\})\\s*</final>` and `<think>\\s*(.*?)\\s*</think>`, first match each. They
backtrack in quadratic time on hostile text (a policy under training writes such text), so both
are scanned here instead, in time and memory linear in the input.
"""

from __future__ import annotations

import json
import math
import re

from subtext import strict_json
from subtext.errors import DataError, Problem

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"
FINAL_OPEN = "<final>"
FINAL_CLOSE = "</final>"
SARCASTIC = "sarcastic"
SINCERE = "sincere"
LABELS = (SARCASTIC, SINCERE)
DEFAULT_CONFIDENCE = 0.5
"""What an answer counts as when it states no confidence that can be read as a number."""

_TAGS = (THINK_OPEN, THINK_CLOSE, FINAL_OPEN, FINAL_CLOSE)
_MALFORMED = (None, DEFAULT_CONFIDENCE, False)
_NON_SPACE = re.compile(r"\S")


def parse_final(text: str) -> tuple[str | None, float, bool]:
    """Return (label, confidence, well_formed) of the first final block in `text`.

    Well-formed: a block that holds JSON with a known label; case and surrounding space are
    forgiven. Then label is one of `LABELS` and confidence lies in 0..1: numbers and numeric
    strings are clamped ("0.4" is 0.4, 7 is 1.0, NaN is 1.0 as in the seed), and anything else,
    null or an absent key, is 0.5.

    Everything else is (None, 0.5, False): no block, broken JSON, an unknown label, and what
    Python cannot hold (JSON nested past its recursion limit, an integer with too many digits
    or too large for a float). Never raises on a string.
    """
    payload = final_payload(text)
    if payload is None:
        return _MALFORMED
    try:
        # It starts with "{", so JSON that parses is a dict.
        stated = json.loads(payload)
        label = str(stated.get("label", "")).strip().lower()
        confidence = _clamped(stated.get("confidence", DEFAULT_CONFIDENCE))
    except (ValueError, RecursionError, OverflowError):
        return _MALFORMED
    return (label, confidence, True) if label in LABELS else _MALFORMED


def is_strict(text: str) -> bool:
    """Return whether `text` is an answer to the letter, as `format_answer` writes one.

    One think block, then one final block, only white space around them, each tag once. The final
    block holds a JSON object with the keys label and confidence, each once, and no other: a label
    of `LABELS` as it is written there, and a number from 0 to 1. Whatever is strict is well-formed
    to `parse_final`, with the same label and confidence.
    """
    if any(text.count(tag) != 1 for tag in _TAGS):
        return False
    before, _, rest = text.partition(THINK_OPEN)
    _, _, rest = rest.partition(THINK_CLOSE)
    between, _, rest = rest.partition(FINAL_OPEN)
    # Tags in another order leave `rest` empty before its turn, which is no JSON.
    payload, _, after = rest.partition(FINAL_CLOSE)
    return not (before + between + after).strip() and _is_strict_payload(payload)


def final_payload(text: str) -> str | None:
    """Return the text from "{" to "}" of the first final block, or None where there is none.

    The block begins at the first `<final>` whose next visible character is "{" and ends at the
    first "}" whose next visible text is `</final>`; other tags in between belong to it.
    """
    start = _payload_start(text)
    if start is None:
        return None
    begin = start + 1
    while (close := text.find(FINAL_CLOSE, begin)) != -1:
        # Stretches between closing tags don't overlap, so each character is copied once.
        stretch = text[begin:close].rstrip()
        if stretch.endswith("}"):
            return text[start : begin + len(stretch)]
        begin = close + len(FINAL_CLOSE)
    # A later opening tag could only end at the same closing tags, so there is no second try.
    return None


def reasoning_text(text: str) -> str | None:
    """Return the first think block without surrounding space, or None where there is none."""
    opened = text.find(THINK_OPEN)
    if opened == -1:
        return None
    begin = opened + len(THINK_OPEN)
    close = text.find(THINK_CLOSE, begin)
    return None if close == -1 else text[begin:close].strip()


def format_answer(reasoning: str, label: str, confidence: float) -> str:
    """Return the canonical answer, which `parse_final` and `reasoning_text` read back unchanged.

    Raises DataError for a label that is not in `LABELS`, a confidence outside 0..1, or
    reasoning that holds a tag of the grammar.
    """
    problems = []
    if label not in LABELS:
        remedy = f"Use one of {', '.join(LABELS)}."
        problems.append(Problem("answer", "label", label, "is no label", remedy))
    if not 0.0 <= confidence <= 1.0:
        remedy = "Give a number from 0 to 1."
        problems.append(Problem("answer", "confidence", confidence, "is out of range", remedy))
    if any(tag in reasoning for tag in _TAGS):
        remedy = f"Leave {' '.join(_TAGS)} out of it."
        problems.append(Problem("answer", "reasoning", reasoning, "holds a tag", remedy))
    if problems:
        raise DataError("Answer refused", problems)
    final = json.dumps({"label": label, "confidence": float(confidence)}, separators=(",", ":"))
    return f"{THINK_OPEN}{reasoning.strip()}{THINK_CLOSE}\n{FINAL_OPEN}{final}{FINAL_CLOSE}"


def _is_strict_payload(payload: str) -> bool:
    try:
        stated = strict_json.loads(payload)
    except ValueError:
        return False
    return (
        isinstance(stated, dict)
        and stated.keys() == {"label", "confidence"}
        and stated["label"] in LABELS
        and type(stated["confidence"]) in (int, float)  # True is an int to isinstance
        and 0 <= stated["confidence"] <= 1
    )


def _payload_start(text: str) -> int | None:
    opened = text.find(FINAL_OPEN)
    while opened != -1:
        begin = opened + len(FINAL_OPEN)
        visible = _NON_SPACE.search(text, begin)
        if visible is None:
            return None
        if visible.group() == "{":
            return visible.start()
        opened = text.find(FINAL_OPEN, visible.start())
    return None


def _clamped(stated: object) -> float:
    """Return `stated` as a number in 0..1. Raises OverflowError for an integer past float."""
    if not isinstance(stated, int | float | str):
        return DEFAULT_CONFIDENCE
    try:
        number = float(stated)
    except ValueError:
        return DEFAULT_CONFIDENCE
    # The seed's clamp, whose comparisons are false for NaN, gave 1.0. Kept, so that scores agree.
    return 1.0 if math.isnan(number) else max(0.0, min(1.0, number))
