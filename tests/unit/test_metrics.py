"""Records of judged clips and their summary: the seed's keys, denominators, intervals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtext import strict_json
from subtext.answer import format_answer
from subtext.errors import EvaluationError
from subtext.evaluation.metrics import score_completion, summarise, wilson_interval

PROSODY = {"duration_s": 1.0}
SURE_SARCASTIC = format_answer("w " * 60, "sarcastic", 0.8)
SEED_RECORD_KEYS = {
    "clip_id", "gold", "is_pivot", "predicted", "confidence", "correct", "well_formed",
    "reward_total", "completion_text",
}  # fmt: skip


def clip(sarcasm: bool, is_pivot: bool = False, prosody: Any = None) -> dict[str, Any]:
    return {"utterance": "Great.", "sarcasm": sarcasm, "is_pivot": is_pivot, "prosody": prosody}


def test_a_record_holds_what_was_read_and_what_it_scored() -> None:
    record = score_completion("1_60", clip(True, True, PROSODY), SURE_SARCASTIC, True, 70)
    assert record.keys() > SEED_RECORD_KEYS
    assert record.pop("reward_total") == pytest.approx(0.93, abs=1e-12)
    assert record == {
        "clip_id": "1_60",
        "gold": "sarcastic",
        "is_pivot": True,
        "has_prosody": True,
        "predicted": "sarcastic",
        "confidence": 0.8,
        "correct": True,
        "well_formed": True,
        "reward_parts": {"correctness": 0.9, "reasoning_length": 1.0, "format": 1.0},
        "ended": True,
        "n_tokens": 70,
        "completion_text": SURE_SARCASTIC,
    }


def test_a_long_completion_is_scored_whole_and_kept_in_part() -> None:
    text = "x" * 2000 + SURE_SARCASTIC
    record = score_completion("1_60", clip(True), text, False, 768)
    assert record["correct"]
    assert record["completion_text"] == "x" * 1500


@pytest.mark.parametrize("prosody", [None, {}], ids=["null", "empty"])
def test_a_clip_without_prosody_says_so(prosody: Any) -> None:
    record = score_completion("1_60", clip(True, prosody=prosody), "", True, 0)
    assert record["has_prosody"] is False


def four_records() -> list[dict[str, Any]]:
    return [
        score_completion("1_1", clip(True, True, PROSODY), SURE_SARCASTIC, True, 70),
        score_completion("1_2", clip(False, True, PROSODY), SURE_SARCASTIC, True, 70),
        score_completion("1_3", clip(True, False, PROSODY), "no answer", False, 100),
        score_completion("1_4", clip(True), SURE_SARCASTIC, True, 60),
    ]


def test_summary_counts_every_judged_clip() -> None:
    records = four_records()
    summary = summarise(records)
    assert summary.pop("results") == records
    assert summary.pop("accuracy_interval") == list(wilson_interval(2, 4))
    assert summary.pop("well_formed_interval") == list(wilson_interval(3, 4))
    assert summary == pytest.approx(
        {
            "n_eval_clips": 4,
            "n_with_prosody": 3,
            "n_correct": 2,
            "n_well_formed": 3,
            "n_ended": 3,
            "accuracy": 0.5,
            "majority_accuracy": 0.75,
            "well_formed_rate": 0.75,
            "mean_reward": (0.93 + 0.37 + 0.0 + 0.93) / 4,
            "mean_confidence": (0.8 + 0.8 + 0.5 + 0.8) / 4,
            "mean_tokens": 75.0,
            "pivot_in_eval": 2,
            "pivot_correct": 1,
        }
    )


def test_summary_is_strict_json_and_keeps_the_seeds_keys() -> None:
    summary = summarise(four_records())
    assert summary.keys() >= {
        "n_eval_clips", "mean_reward", "well_formed_rate", "accuracy", "pivot_in_eval",
        "pivot_correct", "results",
    }  # fmt: skip
    assert strict_json.loads(strict_json.dumps(summary)) == summary


def test_summary_does_not_share_its_records_with_the_caller() -> None:
    records = four_records()
    summary = summarise(records)
    records[0]["correct"] = False
    assert summary["results"][0]["correct"] is True


def test_no_record_is_no_result() -> None:
    with pytest.raises(EvaluationError, match="no clip was judged"):
        summarise([])


def test_a_clip_judged_twice_is_refused() -> None:
    records = four_records()
    with pytest.raises(EvaluationError, match=r"'1_1'.*more than once"):
        summarise([*records, records[0]])


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # To the two digits of the usual table for .60 / .70 / .80.
        pytest.param(48, 80, 0.49, 0.70, id="n80-at-.60"),
        pytest.param(56, 80, 0.59, 0.79, id="n80-at-.70"),
        pytest.param(64, 80, 0.70, 0.87, id="n80-at-.80"),
        pytest.param(126, 210, 0.53, 0.66, id="n210-at-.60"),
        pytest.param(552, 690, 0.77, 0.83, id="n690-at-.80"),
    ],
)
def test_wilson_interval_hand_values(successes: int, n: int, low: float, high: float) -> None:
    interval = wilson_interval(successes, n)
    assert interval == pytest.approx((low, high), abs=0.005)


def test_wilson_interval_at_the_ends() -> None:
    # p = 0: (0, z² / (n + z²)); p = 1 mirrors it. z² = 3.8414588.
    low, high = wilson_interval(0, 10)
    assert low == 0.0
    assert high == pytest.approx(3.8414588 / 13.8414588, abs=1e-7)
    assert wilson_interval(10, 10) == pytest.approx((1 - high, 1.0), abs=1e-12)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_holds_its_estimate_and_mirrors(counts: tuple[int, int]) -> None:
    successes, n = counts
    low, high = wilson_interval(successes, n)
    assert 0.0 <= low <= successes / n <= high <= 1.0
    assert low < high
    mirrored = wilson_interval(n - successes, n)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_wilson_interval_refuses_what_is_no_proportion(successes: int, n: int) -> None:
    with pytest.raises(EvaluationError, match="is no proportion"):
        wilson_interval(successes, n)
