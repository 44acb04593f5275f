"""The answer grammar: the seed's values, equality with its regular expressions, linear time."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subtext.answer import LABELS, final_payload, format_answer, parse_final, reasoning_text
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
