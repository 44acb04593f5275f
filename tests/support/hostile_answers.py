"""What must hold of any text that a policy may write, and pieces to make such texts of.

Shared by the tests and by the coverage-guided fuzzer (`tests/fuzz/fuzz_answer.py`).
"""

from __future__ import annotations

import json
import re

from subtext.answer import (
    LABELS,
    final_payload,
    format_answer,
    is_strict,
    parse_final,
    reasoning_text,
)
from subtext.evaluation.records import COMPLETION_CHARACTERS, score_completion
from subtext.rewards import reasoning_length_score, reward_decomposition

# The grammar as the seed states it. These backtrack, so only short texts are held against them.
_FINAL = re.compile(r"<final>\s*(\{.*?\})\s*</final>", re.DOTALL)
_THINK = re.compile(r"<think>\s*(.*?)\s*</think>", re.DOTALL)
_REGEX_CHARACTERS = 2000
_MALFORMED = (None, 0.5, False)
_ROUNDING = 1e-12
BEST_LENGTH = "w " * 60
"""Reasoning whose length scores the maximum."""
LONGEST_WRONG = 0.15
"""The most that a malformed answer can earn: the part for the length of its reasoning."""

FRAGMENTS = [
    "<think>", "</think>", "<final>", "</final>", "<FINAL>", "<final >", "</final", "<fin", "al>",
    "{", "}", "[", "]", '"', ":", ",", "\\", " ", "\n", "\t", "\u00a0", "\u2003", "\x85",
    '{"label":"sarcastic","confidence":0.9}', '{"label":"sincere","confidence":0.1}',
    '{"label":', '"sarcastic"', '"sincere"', '" Sarcastic "', '"SINCERE"', '"both"', "sarcastic",
    ',"label":"sincere"', ',"label":"sarcastic"', ',"confidence":', '"confidence":1',
    "1e308", "1e999", "-5", "-0.0", "NaN", "Infinity", "-Infinity", "true", "null", '"1"', '"nan"',
    '"inf"', "9" * 400, "9" * 5000, "0." + "3" * 400, "1" + "0" * 310, "1_0", '"1_0"', '"٠.٩"',
    "[" * 1500, "]" * 1500, '{"a":' * 1500, "}" * 1500,
    "\x00", "\\u0000", "\ud800", "\udfff", "\\ud800", "\\ud83d\\ude00", "\ufeff", "\u200b",
    "\u202e", "＜final＞", "ｓincere", "ѕincere", "ſincere", "SİNCERE", "\u0130", "\ufdfa",
    "w " * 60, "w" * 300, "<think>" + "w " * 60 + "</think>",
]  # fmt: skip
"""Pieces of the grammar, whole, broken and disguised."""


def check_answer(text: str) -> None:
    """Raise AssertionError where `text` is misread, or earns more than an honest answer could."""
    label, confidence, well_formed = parse_final(text)
    assert well_formed == (label is not None)
    assert label is None or label in LABELS
    assert 0.0 <= confidence <= 1.0
    assert well_formed or (label, confidence, well_formed) == _MALFORMED
    payload = final_payload(text)
    assert not well_formed or payload is not None
    if is_strict(text):
        assert payload is not None and reasoning_text(text) is not None
        stated = json.loads(payload)
        assert (label, confidence) == (stated["label"], stated["confidence"])
    if len(text) <= _REGEX_CHARACTERS:
        _check_against_the_regex(text)
    totals = {gold: check_reward(text, gold) for gold in LABELS}
    # Confidence moves reward from one gold label to the other; hedging can't have both.
    honest = [_honest(gold, LABELS[0], 0.5) for gold in LABELS]
    assert sum(totals.values()) <= sum(honest) + _ROUNDING


def check_reward(text: str, gold: str) -> float:
    """Return the reward of `text`, which no honest answer of the same label and confidence may
    fall short of; the record of the evaluation says the same."""
    label, confidence, well_formed = parse_final(text)
    score = reward_decomposition(text, gold)
    assert 0.0 <= reasoning_length_score(text) <= 1.0
    assert score["_correct"] is (label == gold)
    if label is None:
        assert score["_total"] <= LONGEST_WRONG + _ROUNDING
    else:
        assert score["_total"] <= _honest(gold, label, confidence) + _ROUNDING
    best = _honest(gold, gold, 1.0) if label == gold else _honest(gold, _other(gold), 0.0)
    assert score["_total"] <= best + _ROUNDING
    record = score_completion("1_1", {"sarcasm": gold == "sarcastic"}, text, True, 1)
    # Halves of a surrogate pair that happen to meet are one character to a JSON reader.
    assert record.pop("completion_text") == text[:COMPLETION_CHARACTERS]
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert (record["predicted"], record["confidence"]) == (label, confidence)
    assert record["reward_total"] == score["_total"]
    assert 0.0 <= record["p_sarcastic"] <= 1.0
    assert record["well_formed"] is well_formed
    assert record["strict"] is is_strict(text)
    assert not record["strict"] or record["well_formed"]
    return float(score["_total"])


def _honest(gold: str, label: str, confidence: float) -> float:
    answer = format_answer(BEST_LENGTH, label, confidence)
    return float(reward_decomposition(answer, gold)["_total"])


def _other(label: str) -> str:
    return next(other for other in LABELS if other != label)


def _check_against_the_regex(text: str) -> None:
    block, think = _FINAL.search(text), _THINK.search(text)
    assert final_payload(text) == (block.group(1) if block else None)
    assert reasoning_text(text) == (think.group(1) if think else None)
