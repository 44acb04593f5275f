"""The reward is asked, before training, about answers whose rank is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from subtext.answer import parse_final
from subtext.errors import TrainingError
from subtext.oracle import check_reward
from subtext.rewards import make_reward_fn, reasoning_length_score, reward_decomposition

ROWS = [
    {
        "prompt": [{"role": "user", "content": f"line {index}"}],
        "clip_id": f"1_{index}",
        "gold": "sincere" if index % 2 else "sarcastic",
        "is_pivot": False,
    }
    for index in range(12)
]
Score = Callable[[str, str], Any]


def reward_of(score: Score) -> Callable[..., list[Any]]:
    """A reward in TRL's signature that scores one text against one gold label."""

    def reward(prompts: Any, completions: Any, gold: list[str], **columns: Any) -> list[Any]:
        assert len(prompts) == len(completions) == len(gold) == len(columns["clip_id"])
        texts = [completion[0]["content"] for completion in completions]
        return [score(text, label) for text, label in zip(texts, gold, strict=True)]

    return reward


def seed(text: str, gold: str) -> float:
    return float(reward_decomposition(text, gold)["_total"])


def test_the_configured_reward_passes() -> None:
    check_reward(make_reward_fn("seed"), ROWS)


def test_a_stricter_reward_passes_too() -> None:
    """Nothing in the check asks for the seed's weights: only ends and order count."""
    check_reward(reward_of(lambda text, gold: seed(text, gold) ** 2), ROWS)


def test_few_rows_of_each_label_are_enough_and_one_label_may_come_first() -> None:
    check_reward(make_reward_fn(), sorted(ROWS, key=lambda row: str(row["gold"])))


@pytest.mark.parametrize(
    ("score", "said"),
    [
        pytest.param(lambda t, g: -seed(t, g), "outside 0 to 1", id="sign flipped"),
        pytest.param(lambda t, g: 1 - seed(t, g), "not the maximum", id="upside down"),
        pytest.param(
            lambda t, g: seed(t, "sarcastic"), "the gold answer scores 0.300", id="gold ignored"
        ),
        pytest.param(
            lambda t, g: seed(t, {"sarcastic": "sincere", "sincere": "sarcastic"}[g]),
            "not the maximum", id="labels swapped",
        ),
        pytest.param(lambda t, g: 1.0, "an empty answer scores 1.000", id="constant high"),
        pytest.param(lambda t, g: 0.5, "the gold answer scores 0.500", id="constant middle"),
        pytest.param(lambda t, g: 0.0, "the gold answer scores 0.000", id="constant low"),
        pytest.param(
            lambda t, g: reasoning_length_score(t), "the wrong label scores 1.000",
            id="length only",
        ),
        pytest.param(
            lambda t, g: float(parse_final(t)[2]), "the wrong label scores 1.000", id="form only"
        ),
        pytest.param(
            lambda t, g: float(parse_final(t)[0] == g), "the wrong label scores 0.000",
            id="as bad as silence",
        ),
        pytest.param(lambda t, g: seed(t, g) or 0.2, "not the minimum", id="pays for silence"),
        pytest.param(lambda t, g: 10 * seed(t, g), "outside 0 to 1", id="other scale"),
        pytest.param(lambda t, g: float("nan"), "is no number", id="nan"),
        pytest.param(lambda t, g: None, "is no number", id="none"),
    ],
)  # fmt: skip
def test_a_broken_reward_is_refused_in_words(score: Score, said: str) -> None:
    with pytest.raises(TrainingError) as caught:
        check_reward(reward_of(score), ROWS)
    assert said in str(caught.value)
    assert "reward.kind" in str(caught.value)
    assert "nothing was trained" in str(caught.value)
