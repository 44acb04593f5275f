"""The reward: the seed's golden values, its bounds, and TRL's calling convention."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtext.answer import LABELS, format_answer
from subtext.errors import ConfigError, SubtextError
from subtext.rewards import (
    RewardInputError,
    make_reward_fn,
    reasoning_length_score,
    reward_decomposition,
)

SEED_GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "seed" / "golden.json"


def words(count: int) -> str:
    return f"<think>{'w ' * count}</think>"


def final(json_text: str) -> str:
    return f"<final>{json_text}</final>"


SURE_SARCASTIC = final('{"label":"sarcastic","confidence":0.8}')
GOOD = words(60) + SURE_SARCASTIC

# completion, gold, (label, confidence, reasoning_length, total), worked out from the formula
GOLDEN = [
    pytest.param(GOOD, "sarcastic", ("sarcastic", 0.8, 1.0, 0.93), id="right-and-sure"),
    pytest.param(GOOD, "sincere", ("sarcastic", 0.8, 1.0, 0.37), id="wrong-and-sure"),
    pytest.param(GOOD, "SARCASTIC", ("sarcastic", 0.8, 1.0, 0.93), id="gold-in-capitals"),
    pytest.param(
        words(25) + '<final> {"label": " Sincere ", "confidence": "0.4"} </final>',
        "sincere",
        ("sincere", 0.4, 0.5, 0.715),
        id="half-the-words-and-loose-json",
    ),
    pytest.param(
        words(225) + final('{"label":"sincere","confidence":7}'),
        "sincere",
        ("sincere", 1.0, 0.75, 0.9625),
        id="long-and-confidence-clamped",
    ),
    pytest.param(
        words(400) + final('{"label":"sincere"}'),
        "sarcastic",
        ("sincere", 0.5, 0.5, 0.4),
        id="rambling-wrong-no-confidence",
    ),
    pytest.param(
        "<think>" + "w " * 60 + final('{"label":"sarcastic","confidence":null}'),
        "sarcastic",
        ("sarcastic", 0.5, 0.0, 0.675),
        id="think-never-closed",
    ),
    pytest.param(
        words(60) + final("{label: sarcastic}"),
        "sarcastic",
        (None, 0.5, 1.0, 0.15),
        id="malformed-keeps-its-reasoning",
    ),
    pytest.param(
        final('{"label":"maybe","confidence":0.9}'),
        "sarcastic",
        (None, 0.5, 0.0, 0.0),
        id="unknown-label",
    ),
    pytest.param("sarcastic", "sarcastic", (None, 0.5, 0.0, 0.0), id="bare-label"),
    pytest.param("", "sincere", (None, 0.5, 0.0, 0.0), id="empty"),
]


@pytest.mark.parametrize(("text", "gold", "expected"), GOLDEN)
def test_golden_values(
    text: str, gold: str, expected: tuple[str | None, float, float, float]
) -> None:
    label, confidence, length, total = expected
    score = reward_decomposition(text, gold)
    assert score["_predicted"] == label
    assert score["_confidence"] == confidence
    assert score["_well_formed"] is (label is not None)
    assert score["_correct"] is (label == gold.lower())
    assert score["reasoning_length"] == length
    assert score["format"] == float(label is not None)
    assert score["_total"] == pytest.approx(total, abs=1e-12)
    assert make_reward_fn()([""], [text], gold=[gold]) == [score["_total"]]


def test_the_seeds_own_golden_file() -> None:
    if not SEED_GOLDEN.exists():
        pytest.skip("shared/seed/golden.json is not beside this checkout")
    cases = json.loads(SEED_GOLDEN.read_text(encoding="utf-8"))["rewards"]
    assert cases
    for case in cases:
        score = reward_decomposition(case["completion"], case["gold"])
        read = (score["_predicted"], score["_confidence"], score["_well_formed"])
        assert read == (case["label"], case["confidence"], case["well_formed"])
        assert score["reasoning_length"] == case["reasoning_length"]
        assert score["_total"] == pytest.approx(case["total"], abs=1e-9)


@pytest.mark.parametrize(
    ("count", "score"),
    [
        (0, 0.0), (1, 0.02), (49, 0.98), (50, 1.0), (150, 1.0), (151, 1 - 1 / 300),
        (225, 0.75), (299, 1 - 149 / 300), (300, 0.5), (301, 0.5), (5000, 0.5),
    ],
)  # fmt: skip
def test_reasoning_length_score(count: int, score: float) -> None:
    assert reasoning_length_score(words(count)) == score


def test_reasoning_length_counts_the_first_think_block_only() -> None:
    assert reasoning_length_score("w " * 60) == 0.0
    assert reasoning_length_score(words(10) + words(60)) == 0.2


@given(st.text(max_size=80) | st.just(GOOD), st.sampled_from(LABELS))
def test_rewards_lie_between_0_and_1(text: str, gold: str) -> None:
    assert 0.0 <= reward_decomposition(text, gold)["_total"] <= 1.0


@pytest.mark.parametrize("gold", LABELS)
def test_the_gold_answer_scores_the_maximum(gold: str) -> None:
    best = reward_decomposition(format_answer("w " * 60, gold, 1.0), gold)
    assert best["_total"] == pytest.approx(1.0, abs=1e-12)


@given(st.floats(0.0, 1.0), st.sampled_from(LABELS), st.integers(0, 400))
def test_the_right_label_never_scores_less_than_the_wrong_one(
    confidence: float, label: str, count: int
) -> None:
    text = format_answer("w " * count, label, confidence)
    wrong_gold = next(other for other in LABELS if other != label)
    right, wrong = reward_decomposition(text, label), reward_decomposition(text, wrong_gold)
    assert right["_total"] - wrong["_total"] == pytest.approx(0.70 * confidence, abs=1e-12)


class Trl:
    """What TRL's trainer hands to a reward function, kept as TRL keeps it."""

    def __init__(self) -> None:
        self.metrics: dict[str, list[float]] = defaultdict(list)
        self.columns: dict[str, list[Any]] = defaultdict(list)

    def kwargs(self, n: int) -> dict[str, Any]:
        return {
            "completion_ids": [[1, 2]] * n,
            "trainer_state": object(),
            "log_metric": lambda name, value: self.metrics[name].append(value),
            "log_extra": lambda name, values: self.columns[name].extend(values),
            "clip_id": [f"1_{i}" for i in range(n)],
            "is_pivot": [False] * n,
        }


def as_messages(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


TEXTS = [GOOD, GOOD, "sarcastic", final('{"label":"sincere"}')]
GOLDS = ["sarcastic", "sincere", "sarcastic", "sincere"]
TOTALS = [0.93, 0.37, 0.0, 0.675]


@pytest.mark.parametrize("wrap", [str, as_messages], ids=["strings", "conversations"])
def test_reward_fn_takes_both_shapes_of_completion(wrap: Any) -> None:
    completions = [wrap(text) for text in TEXTS]
    rewards = make_reward_fn("seed")([""] * 4, completions, gold=GOLDS)
    assert rewards == pytest.approx(TOTALS, abs=1e-12)
    assert all(type(reward) is float for reward in rewards)


def test_reward_fn_logs_parts_and_true_accuracy_side_by_side() -> None:
    trl = Trl()
    completions = [as_messages(text) for text in TEXTS]
    rewards = make_reward_fn()(
        prompts=[""] * 4, completions=completions, gold=GOLDS, **trl.kwargs(4)
    )
    assert rewards == pytest.approx(TOTALS, abs=1e-12)
    assert {name: values[0] for name, values in trl.metrics.items()} == pytest.approx(
        {
            "reward_parts/correctness": (0.9 + 0.1 + 0.0 + 0.75) / 4,
            "reward_parts/reasoning_length": 2 / 4,
            "reward_parts/format": 3 / 4,
            "accuracy": 2 / 4,
            "well_formed": 3 / 4,
            "confidence_mean": (0.8 + 0.8 + 0.5 + 0.5) / 4,
        }
    )
    assert trl.columns == {
        "gold": GOLDS,
        "predicted": ["sarcastic", "sarcastic", None, "sincere"],
        "confidence": [0.8, 0.8, 0.5, 0.5],
        "correct": [True, False, False, True],
        "well_formed": [True, True, False, True],
    }


def test_logging_adds_no_column_that_trl_writes_itself() -> None:
    trl = Trl()
    reward_fn = make_reward_fn()
    reward_fn([""], [GOOD], gold=["sincere"], **trl.kwargs(1))
    trls_own = {"step", "prompt", "completion", "advantage", reward_fn.__name__}
    assert trls_own.isdisjoint(trl.columns)


def test_an_empty_batch_has_no_rewards_and_no_made_up_means() -> None:
    trl = Trl()
    assert make_reward_fn()([], [], gold=[], **trl.kwargs(0)) == []
    assert trl.metrics == {}


def test_trl_logs_the_reward_under_a_telling_name() -> None:
    assert make_reward_fn("seed").__name__ == "seed_reward"


@pytest.mark.parametrize(
    ("prompts", "completions", "columns", "field", "remedy"),
    [
        pytest.param([""], [GOOD], {}, "gold", "Add it to the dataset", id="no-gold"),
        pytest.param(
            [""], [GOOD], {"gold": ["sincere"] * 2}, "len(gold)", "one entry", id="gold-too-long"
        ),
        pytest.param(
            ["", ""], [GOOD] * 2, {"gold": ["sincere"]}, "len(gold)", "one entry", id="gold-short"
        ),
        pytest.param(
            ["", ""], [GOOD], {"gold": ["sincere"]}, "len(prompts)", "one entry", id="prompts-long"
        ),
        pytest.param([""], [GOOD], {"gold": [True]}, "gold", "sarcastic", id="gold-is-a-bool"),
        pytest.param([""], [GOOD], {"gold": ["ironic"]}, "gold", "sarcastic", id="gold-unknown"),
        pytest.param(
            [""], [[]], {"gold": ["sincere"]}, "completions", "Pass a string", id="no-message"
        ),
        pytest.param(
            [""],
            [[{"role": "assistant", "tool_calls": []}]],
            {"gold": ["sincere"]},
            "completions",
            "Pass a string",
            id="message-without-content",
        ),
    ],
)
def test_reward_fn_refuses_columns_it_cannot_score(
    prompts: list[str],
    completions: list[Any],
    columns: dict[str, Any],
    field: str,
    remedy: str,
) -> None:
    with pytest.raises(RewardInputError) as caught:
        make_reward_fn()(prompts, completions, **columns)
    assert f"{field} = " in str(caught.value)
    assert remedy in str(caught.value)
    assert isinstance(caught.value, SubtextError)
    assert isinstance(caught.value, ValueError)


def test_unknown_kind_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"reward\.kind = 'brier'.*Use seed"):
        make_reward_fn("brier")
