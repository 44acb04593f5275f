"""The answer grammar: the seed's values, equality with its regular expressions, linear time."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subtext.answer import (
    LABELS,
    final_payload,
    format_answer,
    is_strict,
    parse_final,
    reasoning_text,
)
from subtext.errors import DataError

MALFORMED = (None, 0.5, False)


def final(json_text: str) -> str:
    return f"<final>{json_text}</final>"


def stating(confidence: str) -> str:
    return final(f'{{"label":"sincere","confidence":{confidence}}}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            final('{"label":"sarcastic","confidence":0.8}'), ("sarcastic", 0.8, True), id="plain"
        ),
        pytest.param(
            final(' \n{"label":"sincere","confidence":0.8}\t'),
            ("sincere", 0.8, True),
            id="space-around-the-json",
        ),
        pytest.param(
            final('\u00a0{"label":"sincere","confidence":0.8}\u2003'),
            ("sincere", 0.8, True),
            id="unicode-space-around-the-json",
        ),
        pytest.param(
            final('{"label":" Sincere ","confidence":1}'), ("sincere", 1.0, True), id="label-case"
        ),
        pytest.param(stating('"0.4"'), ("sincere", 0.4, True), id="confidence-in-quotes"),
        pytest.param(stating("7"), ("sincere", 1.0, True), id="confidence-above-1"),
        pytest.param(stating("-7"), ("sincere", 0.0, True), id="confidence-below-0"),
        pytest.param(stating("null"), ("sincere", 0.5, True), id="confidence-null"),
        pytest.param(stating('"high"'), ("sincere", 0.5, True), id="confidence-is-a-word"),
        pytest.param(stating("[0.9]"), ("sincere", 0.5, True), id="confidence-is-a-list"),
        pytest.param(stating("true"), ("sincere", 1.0, True), id="confidence-true-is-1"),
        pytest.param(stating("1e999"), ("sincere", 1.0, True), id="float-overflow-is-infinity"),
        pytest.param(stating("-Infinity"), ("sincere", 0.0, True), id="minus-infinity"),
        pytest.param(stating("NaN"), ("sincere", 1.0, True), id="nan-is-the-seeds-1"),
        pytest.param(stating('"nan"'), ("sincere", 1.0, True), id="nan-in-quotes"),
        pytest.param(stating('"\\ud800"'), ("sincere", 0.5, True), id="lone-surrogate-confidence"),
        pytest.param(final('{"label":"sincere"}'), ("sincere", 0.5, True), id="confidence-absent"),
        pytest.param(
            final('{"label":"sarcastic","label":"sincere"}'),
            ("sincere", 0.5, True),
            id="last-of-two-labels-counts",
        ),
        pytest.param(
            final('{"label":"sincere","why":{"a":"}"}}'), ("sincere", 0.5, True), id="inner-braces"
        ),
        pytest.param(
            "<final>none<final>" + '{"label":"sincere"}</final>',
            ("sincere", 0.5, True),
            id="opening-tag-without-json-is-skipped",
        ),
        pytest.param(
            final('{"label":"sincere"}') + final('{"label":"sarcastic"}'),
            ("sincere", 0.5, True),
            id="first-of-two-blocks-counts",
        ),
        pytest.param(
            "<final>{<final>" + '{"label":"sincere"}</final>',
            MALFORMED,
            id="block-begins-at-the-first-brace",
        ),
        pytest.param(
            final('{"label":"sincere"} so') + final('{"label":"sincere"}'),
            MALFORMED,
            id="text-after-the-json-draws-the-next-block-in",
        ),
        pytest.param("", MALFORMED, id="empty"),
        pytest.param("sarcastic", MALFORMED, id="bare-label"),
        pytest.param('<final>{"label":"sincere"}', MALFORMED, id="never-closed"),
        pytest.param('<FINAL>{"label":"sincere"}</FINAL>', MALFORMED, id="tags-keep-their-case"),
        pytest.param(final('["sincere"]'), MALFORMED, id="not-an-object"),
        pytest.param(final("{label: sincere}"), MALFORMED, id="broken-json"),
        pytest.param(final("{}"), MALFORMED, id="no-label"),
        pytest.param(final('{"label":"maybe","confidence":0.9}'), MALFORMED, id="unknown-label"),
        pytest.param(final('{"label":["sincere"]}'), MALFORMED, id="label-is-a-list"),
        pytest.param(final('{"label":"\ud800"}'), MALFORMED, id="lone-surrogate-label"),
    ],
)
def test_parse_final(text: str, expected: tuple[str | None, float, bool]) -> None:
    assert parse_final(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(stating("9" * 400), id="integer-too-large-for-a-float"),
        pytest.param(stating("9" * 5000), id="integer-with-too-many-digits"),
        pytest.param(stating("[" * 100_000 + "]" * 100_000), id="deep-list"),
        pytest.param(stating('{"a":' * 100_000 + "1" + "}" * 100_000), id="deep-object"),
        pytest.param(final('{"label":' + "[" * 100_000 + "]" * 100_000 + "}"), id="deep-label"),
    ],
)
def test_what_python_cannot_hold_is_malformed(text: str) -> None:
    assert final_payload(text) is not None
    assert parse_final(text) == MALFORMED


@pytest.mark.parametrize("depth", range(900, 1001))
def test_nesting_near_the_recursion_limit_never_raises(depth: int) -> None:
    label, confidence, well_formed = parse_final(stating("[" * depth + "]" * depth))
    assert (label, confidence, well_formed) in [MALFORMED, ("sincere", 0.5, True)]
    assert parse_final(final('{"label":' + "[" * depth + "]" * depth + "}")) == MALFORMED


# The grammar as the seed states it; quadratic, hence the oracle here and not the parser there.
FINAL_REGEX = re.compile(r"<final>\s*(\{.*?\})\s*</final>", re.DOTALL)
THINK_REGEX = re.compile(r"<think>\s*(.*?)\s*</think>", re.DOTALL)
FRAGMENTS = [
    "<final>", "</final>", "<think>", "</think>", "{", "}", " ", "\n\u00a0", "x",
    '{"label":"sincere"}', "<fin", "al>", "</", "<", ">",
]  # fmt: skip
hostile_texts = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)
final_texts = st.lists(st.sampled_from(["{", "}", " ", "</final>", "<final>", "x"]), max_size=10)


@given(st.one_of(hostile_texts, final_texts.map(lambda parts: "<final>" + "".join(parts))))
@settings(max_examples=1500, deadline=None)
def test_final_block_is_the_one_the_regex_finds(text: str) -> None:
    match = FINAL_REGEX.search(text)
    assert final_payload(text) == (match.group(1) if match else None)


@given(hostile_texts)
@settings(max_examples=500, deadline=None)
def test_think_block_is_the_one_the_regex_finds(text: str) -> None:
    match = THINK_REGEX.search(text)
    assert reasoning_text(text) == (match.group(1) if match else None)


def test_space_means_the_same_to_the_scanner_and_to_the_regex() -> None:
    for code in range(0x3100):
        text = f"<final>{chr(code)}{{}}{chr(code)}</final><think>{chr(code)}</think>"
        match, think = FINAL_REGEX.search(text), THINK_REGEX.search(text)
        assert final_payload(text) == (match.group(1) if match else None), hex(code)
        assert think is not None
        assert reasoning_text(text) == think.group(1), hex(code)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(st.one_of(st.sampled_from(LABELS), json_values), json_values)
def test_confidence_is_always_a_number_from_0_to_1(label: object, confidence: object) -> None:
    text = final(json.dumps({"label": label, "confidence": confidence}))
    read_label, read_confidence, well_formed = parse_final(text)
    assert 0.0 <= read_confidence <= 1.0
    assert well_formed == (read_label is not None)
    assert well_formed or read_confidence == 0.5


MILLION = 1_000_000


@pytest.mark.timeout(120)  # seconds in all when linear; hours when quadratic
@pytest.mark.parametrize(
    ("head", "unit", "count", "tail"),
    [
        pytest.param("", "<final>{", MILLION, "", id="openings-with-brace"),
        pytest.param("", "<final>", MILLION, "{", id="openings"),
        pytest.param("", "<final> \n", MILLION, "", id="openings-with-space"),
        pytest.param("<final>", " ", 10 * MILLION, "", id="space-after-an-opening"),
        pytest.param("<final>", " ", 10 * MILLION, "{}</final>", id="space-before-the-json"),
        pytest.param("<final>{", "}", 10 * MILLION, "", id="braces"),
        pytest.param("<final>{", "} ", 5 * MILLION, "x</final>", id="braces-with-space"),
        pytest.param("<final>{}", " ", 10 * MILLION, "<", id="space-after-the-json"),
        pytest.param("<final>{", "} </final", MILLION, "", id="almost-closings"),
        pytest.param("<final>{", "</final>", MILLION, "}", id="closings"),
        pytest.param("<final>{", "}x </final>", MILLION, "", id="closings-after-text"),
        pytest.param("<final>", '{"a":', MILLION, "}</final>", id="deep-objects"),
        pytest.param('<final>{"a":', "[", 10 * MILLION, "}</final>", id="deep-lists"),
        pytest.param('<final>{"label":', "9", 10 * MILLION, "}</final>", id="digits"),
        pytest.param('<final>{"confidence":"1.', "3", 10 * MILLION, '"}</final>', id="decimals"),
        pytest.param('<final>{"label":"', "\\u0020", MILLION, '"}</final>', id="escapes"),
        pytest.param("<final>{", '"a":0,', MILLION, "}</final>", id="repeated-keys"),
        pytest.param("", "<think>", MILLION, "", id="think-openings"),
        pytest.param("<think>", " ", 10 * MILLION, "", id="space-in-an-open-think"),
        pytest.param("<think>", " <think> ", MILLION, "</think", id="thinks-with-space"),
        pytest.param("", "</think>", MILLION, "<think>", id="think-closings"),
    ],
)
def test_ten_megabytes_of_hostile_text_are_read_in_linear_time(
    head: str, unit: str, count: int, tail: str
) -> None:
    text = head + unit * count + tail
    assert parse_final(text) == MALFORMED
    assert reasoning_text(text) is None
    assert not is_strict(text)


def test_a_long_answer_is_read_whole() -> None:
    text = "<final>" + " " * MILLION + '{"label":"sincere","why":"' + "x" * MILLION + '"}</final>'
    assert parse_final("<final>" * MILLION + text) == ("sincere", 0.5, True)
    assert reasoning_text("<think>" + "w " * MILLION + "</think>") == ("w " * MILLION).strip()


def test_format_answer_writes_the_canonical_form() -> None:
    assert format_answer(" flat delivery ", "sarcastic", 0.8) == (
        '<think>flat delivery</think>\n<final>{"label":"sarcastic","confidence":0.8}</final>'
    )


@given(
    st.text(max_size=40).filter(lambda text: "<" not in text),
    st.sampled_from(LABELS),
    st.floats(0.0, 1.0),
)
def test_format_answer_is_read_back_unchanged(
    reasoning: str, label: str, confidence: float
) -> None:
    text = format_answer(reasoning, label, confidence)
    assert parse_final(text) == (label, confidence, True)
    assert reasoning_text(text) == reasoning.strip()


@pytest.mark.parametrize(
    ("reasoning", "label", "confidence", "field"),
    [
        pytest.param("r", "maybe", 0.5, "label", id="unknown-label"),
        pytest.param("r", "Sincere", 0.5, "label", id="label-in-other-case"),
        pytest.param("r", "sincere", 1.01, "confidence", id="confidence-above-1"),
        pytest.param("r", "sincere", float("nan"), "confidence", id="confidence-nan"),
        pytest.param("a</think>b", "sincere", 0.5, "reasoning", id="reasoning-closes-itself"),
        pytest.param("<final>{}", "sincere", 0.5, "reasoning", id="reasoning-opens-a-final"),
    ],
)
def test_format_answer_refuses_what_would_not_be_read_back(
    reasoning: str, label: str, confidence: float, field: str
) -> None:
    with pytest.raises(DataError) as caught:
        format_answer(reasoning, label, confidence)
    assert [problem.field for problem in caught.value.problems] == [field]


THINK = "<think>flat delivery</think>"
SINCERE_AT_08 = final('{"label":"sincere","confidence":0.8}')
STRICT = THINK + "\n" + SINCERE_AT_08


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(STRICT, id="canonical"),
        pytest.param(f" \n{THINK}\u00a0{SINCERE_AT_08}\n\n", id="white-space-around-the-blocks"),
        pytest.param(THINK + SINCERE_AT_08, id="nothing-between-the-blocks"),
        pytest.param("<think></think>" + SINCERE_AT_08, id="empty-reasoning"),
        pytest.param("<think>a < b, {0.9}</think>" + SINCERE_AT_08, id="free-reasoning"),
        pytest.param(
            THINK + final(' {\n"confidence": 1, "label": "sarcastic"} '), id="keys-in-any-order"
        ),
        pytest.param(THINK + stating("0"), id="confidence-0"),
        pytest.param(THINK + stating("1e-3"), id="confidence-with-an-exponent"),
        pytest.param(
            THINK + final('{"label":"s\\u0069ncere","confidence":1}'), id="escaped-letter"
        ),
    ],
)
def test_strict(text: str) -> None:
    assert is_strict(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(SINCERE_AT_08, id="no-think-block"),
        pytest.param(THINK, id="no-final-block"),
        pytest.param(SINCERE_AT_08 + THINK, id="blocks-in-the-wrong-order"),
        pytest.param(THINK + STRICT, id="two-think-blocks"),
        pytest.param(STRICT + SINCERE_AT_08, id="two-final-blocks"),
        pytest.param(STRICT + " So it is.", id="text-after"),
        pytest.param("Well. " + STRICT, id="text-before"),
        pytest.param(THINK + " So " + SINCERE_AT_08, id="text-between"),
        pytest.param(f"<think>flat{SINCERE_AT_08}</think>", id="final-inside-think"),
        pytest.param("<final>" + THINK + "{}</final>", id="think-inside-final"),
        pytest.param("</think>flat<think>" + SINCERE_AT_08, id="think-closed-before-it-opens"),
        pytest.param(STRICT + "<think>", id="a-tag-too-many"),
        pytest.param(STRICT.removesuffix("</final>"), id="never-closed"),
        pytest.param(STRICT.replace("think", "THINK"), id="tags-keep-their-case"),
        pytest.param(THINK + final(""), id="empty-final"),
        pytest.param(THINK + final('["sincere"]'), id="not-an-object"),
        pytest.param(THINK + final('{"label":"sincere","confidence":0.8} so'), id="after-the-json"),
        pytest.param(THINK + final("{'label':'sincere','confidence':0.8}"), id="broken-json"),
        pytest.param(THINK + final('{"label":"sincere"}'), id="no-confidence"),
        pytest.param(THINK + final('{"confidence":0.8}'), id="no-label"),
        pytest.param(
            THINK + final('{"label":"sincere","confidence":0.8,"why":1}'), id="a-third-key"
        ),
        pytest.param(
            THINK + final('{"label":"sincere","label":"sincere","confidence":1}'), id="key-twice"
        ),
        pytest.param(THINK + final('{"label":"Sincere","confidence":1}'), id="label-in-other-case"),
        pytest.param(THINK + final('{"label":" sincere","confidence":1}'), id="space-in-the-label"),
        pytest.param(THINK + final('{"label":["sincere"],"confidence":1}'), id="label-is-a-list"),
        pytest.param(THINK + stating('"0.8"'), id="confidence-in-quotes"),
        pytest.param(THINK + stating("80%"), id="confidence-in-percent"),
        pytest.param(THINK + stating("true"), id="confidence-true"),
        pytest.param(THINK + stating("null"), id="confidence-null"),
        pytest.param(THINK + stating("1.01"), id="confidence-above-1"),
        pytest.param(THINK + stating("-0.1"), id="confidence-below-0"),
        pytest.param(THINK + stating("NaN"), id="confidence-nan"),
        pytest.param(THINK + stating("1e999"), id="confidence-overflows"),
        pytest.param(THINK + stating("9" * 5000), id="integer-with-too-many-digits"),
        pytest.param(THINK + stating("[" * 100_000), id="deep-list"),
    ],
)
def test_not_strict(text: str) -> None:
    assert not is_strict(text)


@given(
    st.text(max_size=40).filter(lambda text: "<" not in text),
    st.sampled_from(LABELS),
    st.floats(0.0, 1.0),
    st.text(min_size=1, max_size=10).filter(lambda text: text.strip()),
)
def test_what_format_answer_writes_is_strict_until_something_is_added(
    reasoning: str, label: str, confidence: float, more: str
) -> None:
    text = format_answer(reasoning, label, confidence)
    assert is_strict(text)
    assert not is_strict(text + more)
    assert not is_strict(more + text)


near_answers = st.lists(
    st.sampled_from([*FRAGMENTS, THINK, SINCERE_AT_08, "<think>", "</final>\n"]), max_size=6
).map("".join)


@given(near_answers)
@settings(max_examples=500, deadline=None)
def test_what_is_strict_is_well_formed(text: str) -> None:
    if is_strict(text):
        assert parse_final(text) == ("sincere", 0.8, True)
        assert reasoning_text(text) is not None
