"""Answers written against the parser and the reward: never an exception, never a misreading, never
more reward than honesty, never more than linear time.

`support.hostile_answers` holds the properties. The coverage-guided fuzzer (`tests/fuzz`) found no
text that breaks them in ten minutes and 828,296 texts; of those that reached new code,
FOUND_BY_FUZZER keeps the ones of another shape than the rest.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.hostile_answers import BEST_LENGTH, FRAGMENTS, LONGEST_WRONG, check_answer

from subtext.answer import LABELS, format_answer, is_strict, parse_final, reasoning_text
from subtext.evaluation.records import p_sarcastic, score_completion
from subtext.rewards import make_reward_fn, reward_decomposition

THOUGHT = f"<think>{BEST_LENGTH}</think>"
FOUND_BY_FUZZER = [
    "<final>{", "<final>Xx<final> l>\xa0", "<final><final>\udca0", "\udcbb\udcbf<final>{</final>",
    '<final>{"</final></final>', "<final>{l</final></final>c</final></final>f",
    '<final>{"al":"\udced\udca4\udc80"}</final>', "<think></think><final>\ufeff</final>",
    '<final>x<final> {"label":sincere","confidence":null,"why":{"a\x1c:"}"}} </final></final>',
    '<final>{"confidence":[[[[]]]]}</final>', '<final>{"label":" Sincere ","cde":"0.4"}</final>',
    "<think>\udcff\udcff\udcff</think><final>2e9998}</final>",
    "<think></think><final>sarcasticInfinity</final>", "\ud800\udcff",
    '<think>at</think>\n<final>{"le":"c","\udc8as":"cstic","c":"src","con":4}</final>',
    '<final>{"</final></final>cnce"0>4"}<l>{"l</final></fina<final>{"l</final></final>cnc\x00e":"0',
]  # fmt: skip

any_text = st.text(st.characters(categories=["L", "N", "P", "S", "Z", "C"]), max_size=60)
pieces = st.sampled_from(FRAGMENTS) | any_text
texts = st.lists(pieces, max_size=12).map("".join)


def answer(payload: str) -> str:
    return f"{THOUGHT}<final>{payload}</final>"


# JSON as a policy may state it: any number, nesting, repeated keys, any words for a label.
numbers = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(json.dumps),
    st.integers().map(str),
    st.sampled_from(["1e308", "-1e308", "1e999", "-5", "9" * 400, "9" * 5000, "-0", "1E+2", "01"]),
)
words = st.one_of(any_text, st.sampled_from([*LABELS, "SINCERE", " sarcastic\n", "ſincere"]))
json_texts = st.recursive(
    numbers | words.map(json.dumps) | st.sampled_from(["null", "true", "false", "{}", "[]"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(words.map(json.dumps), inner), max_size=4).map(
            lambda pairs: "{" + ",".join(f"{key}:{value}" for key, value in pairs) + "}"
        ),
    ),
    max_leaves=8,
)
keys = st.sampled_from(["label", "confidence", "Label", "label ", "why"]).map(json.dumps)
payloads = st.lists(st.tuples(keys, json_texts), max_size=5).map(
    lambda pairs: "{" + ",".join(f"{key}:{value}" for key, value in pairs) + "}"
)
blocks = st.tuples(
    st.sampled_from(["", THOUGHT, "<think>", "</think>", "<final>"]), payloads, texts
).map(lambda parts: f"{parts[0]}<final>{parts[1]}</final>{parts[2]}")


@settings(max_examples=400, deadline=None)
@given(texts)
@example("<final>{</final>}</final>")
@example('<final>{"label":"sincere","confidence":[' + "[" * 990 + "]" * 991 + "}</final>")
def test_whatever_is_written_is_read_as_it_stands_and_earns_no_more_than_honesty(text: str) -> None:
    check_answer(text)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(blocks)
def test_so_is_whatever_has_the_shape_of_an_answer(text: str) -> None:
    check_answer(text)


@pytest.mark.parametrize("text", FRAGMENTS)
def test_so_is_every_fragment_alone_and_inside_an_answer(text: str) -> None:
    for written in (
        text, answer(text), answer('{"label":' + text + "}"), THOUGHT + text,
        answer('{"label":"sincere","confidence":' + text + "}"),
        answer('{"label":"sincere","why":' + json.dumps(text) + "}"),
        f"<think>{text}</think>" + answer('{"label":"sarcastic","confidence":1}'),
    ):  # fmt: skip
        check_answer(written)


@pytest.mark.parametrize("text", FOUND_BY_FUZZER)
def test_so_is_what_the_fuzzer_kept(text: str) -> None:
    check_answer(text)


def stating(confidence: str, label: str = "sarcastic") -> str:
    return answer('{"label":"' + label + '","confidence":' + confidence + "}")


SURE = stating("1")
UNSURE = stating("0")
WRONG = stating("1", "sincere")
# What is written, and the reward where the clip is sarcastic; THOUGHT earns the whole length.
TRICKS = [
    pytest.param(SURE, 1.0, id="honest-and-right"),
    pytest.param(WRONG, 0.3, id="honest-and-wrong"),
    pytest.param(UNSURE, 0.65, id="right-without-confidence"),
    pytest.param(stating("0", "sincere"), 0.65, id="wrong-without-confidence-is-the-best-wrong"),
    pytest.param(stating("1e308"), 1.0, id="huge-confidence-is-1"),
    pytest.param(stating("1e308", "sincere"), 0.3, id="huge-confidence-in-the-wrong-label"),
    pytest.param(stating("-5", "sincere"), 0.65, id="negative-confidence-earns-no-more-than-0"),
    pytest.param(stating("-5"), 0.65, id="negative-confidence-in-the-right-label"),
    pytest.param(stating('"1"'), 1.0, id="confidence-in-quotes"),
    pytest.param(stating("NaN"), 1.0, id="nan-is-1-as-in-the-seed"),
    pytest.param(stating("NaN", "sincere"), 0.3, id="nan-in-the-wrong-label"),
    pytest.param(SURE + WRONG, 1.0, id="two-blocks-the-first-counts"),
    pytest.param(WRONG + SURE, 0.3, id="two-blocks-the-second-does-not"),
    pytest.param(answer('{"label":["sarcastic","sincere"]}'), 0.15, id="both-labels-as-a-list"),
    pytest.param(answer('{"label":"sarcastic or sincere"}'), 0.15, id="both-labels-in-words"),
    pytest.param(
        answer('{"label":"sarcastic","label":"sincere","confidence":1}'), 0.3,
        id="both-labels-as-keys-the-last-counts",
    ),
    pytest.param(answer('{"label":{"sarcastic":1}}'), 0.15, id="label-as-an-object"),
    pytest.param(answer('{"label":true}'), 0.15, id="label-true"),
    pytest.param(answer('{"label":"ѕarcastic"}'), 0.15, id="cyrillic-s"),
    pytest.param(answer('{"label":"ſarcastic"}'), 0.15, id="long-s"),
    pytest.param(answer('{"label":"sarcastic\\u200b"}'), 0.15, id="zero-width-space"),
    pytest.param(answer('{"label":"ｓａｒｃａｓｔｉｃ"}'), 0.15, id="full-width"),
    pytest.param(THOUGHT * 9 + "<final>", LONGEST_WRONG, id="reasoning-alone"),
    pytest.param(THOUGHT, LONGEST_WRONG, id="nothing-but-reasoning"),
    pytest.param("<think>" * 99 + "w " * 60 + "</think>", LONGEST_WRONG, id="nested-thoughts"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reward"), TRICKS)
def test_a_trick_earns_what_is_written_here(text: str, reward: float) -> None:
    check_answer(text)
    [earned] = make_reward_fn()(None, [text], gold=["sarcastic"])
    assert earned == pytest.approx(reward, abs=1e-12)


def test_no_trick_earns_more_under_both_labels_than_an_honest_answer() -> None:
    honest = sum(reward_decomposition(format_answer("w " * 60, "sincere", 0.9), gold)["_total"]
                 for gold in LABELS)  # fmt: skip
    for trick in TRICKS:
        both = sum(reward_decomposition(trick.values[0], gold)["_total"] for gold in LABELS)
        assert both <= honest + 1e-12


@settings(max_examples=200, deadline=None)
@given(texts | blocks)
def test_a_judged_answer_is_kept_as_plain_values(text: str) -> None:
    record = score_completion("1_1", {"sarcasm": True}, text, True, 1)
    label, confidence, well_formed = parse_final(text)
    assert record["p_sarcastic"] == p_sarcastic(label, confidence)
    assert (record["well_formed"], record["strict"]) == (well_formed, is_strict(text))
    assert len(record["completion_text"]) <= 1500
    plain = {type(value) for value in record.values()}
    assert plain <= {str, bool, float, int, dict, type(None)}


# Reading 16 times the text may take 64 times as long: linear is 16, quadratic 256.
_SMALL, _LARGER, _AT_MOST = 30_000, 16, 64
_LEAST_S = 2e-4
_HEADS = ["", "<final>", "<final>{", "<think>", '<final>{"label":', '<final>{"label":"']


def read_whole(text: str) -> None:
    """What training and evaluation do with an answer."""
    score_completion("1_1", {"sarcasm": True}, text, True, 1)
    reasoning_text(text)


def seconds(read: Callable[[str], object], text: str) -> float:
    """Processor time of this thread alone, the least of two: what others do does not count."""
    found = []
    for _ in range(2):
        before = time.thread_time()
        read(text)
        found.append(time.thread_time() - before)
    return max(min(found), _LEAST_S)


def is_linear(read: Callable[[str], object], head: str, unit: str, tail: str) -> bool:
    count = _SMALL // len(unit) + 1
    # Measured again where a collection of garbage fell into it.
    for _ in range(3):
        small = seconds(read, head + unit * count + tail)
        large = seconds(read, head + unit * (_LARGER * count) + tail)
        if large <= _AT_MOST * small:
            return True
    return False


def test_the_measure_tells_quadratic_from_linear() -> None:
    backtracking = re.compile(r"<final>\s*(\{.*?\})\s*</final>", re.DOTALL)
    assert not is_linear(
        lambda text: backtracking.search(text[: len(text) // 30]), "", "<final>{", ""
    )
    assert is_linear(len, "", "<final>{", "")


@pytest.mark.slow
@pytest.mark.parametrize("unit", [piece for piece in FRAGMENTS if len(piece) < 500])
def test_time_is_linear_whatever_is_repeated(unit: str) -> None:
    for head, tail in product(_HEADS, ["", "}</final></think>"]):
        assert is_linear(read_whole, head, unit, tail), (head, tail)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS[:56]), min_size=2, max_size=5).map("".join))
def test_time_is_linear_whatever_combination_is_repeated(unit: str) -> None:
    for head in _HEADS:
        assert is_linear(read_whole, head, unit, "}</final>"), head


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(THOUGHT * 150_000, id="many-thoughts"),
        pytest.param("<final>" * 1_500_000, id="many-openings"),
        pytest.param("<think><final>{" * 700_000 + "}</final></think>", id="nested-tags"),
        pytest.param(stating("[" * 5_000_000 + "]" * 5_000_000), id="deep-json"),
        pytest.param(stating("9" * 10_000_000), id="a-huge-number"),
        pytest.param(stating("0." + "9" * 10_000_000), id="a-long-fraction"),
        pytest.param(stating('"' + "٣" * 5_000_000 + '"'), id="arabic-digits"),
        pytest.param("ſ\u0130\ufdfa\u202e" * 2_500_000, id="confusables"),
        pytest.param("\x00" * 10_000_000, id="nul"),
        pytest.param("<think>" + "\u2003w" * 5_000_000 + "</think>", id="wide-spaces"),
        pytest.param('<final>{"label":"sincere","a":"' + "\ud800" * 10_000_000 + '"}</final>',
                     id="surrogates"),
    ],
)  # fmt: skip
def test_ten_megabytes_are_read(text: str) -> None:
    assert len(text.encode("utf-8", "surrogatepass")) >= 5_000_000
    label, confidence, well_formed = parse_final(text)
    assert well_formed == (label is not None)
    assert 0.0 <= confidence <= 1.0
    for gold in LABELS:
        assert 0.0 <= reward_decomposition(text, gold)["_total"] <= 1.0
