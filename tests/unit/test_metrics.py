"""The figures of a pass: the seed's keys, denominators, F1, intervals, and odd inputs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from subtext import strict_json
from subtext.answer import LABELS, SARCASTIC, SINCERE, format_answer
from subtext.errors import EvaluationError
from subtext.evaluation.metrics import f1_samples, summarise
from subtext.evaluation.records import score_completion
from subtext.evaluation.statistics import Resamples, wilson_interval

PROSODY = {"duration_s": 1.0}
SURE_SARCASTIC = format_answer("w " * 60, SARCASTIC, 0.8)
MALFORMED = "no answer"
Answer = tuple[str, str | None, float]  # gold, predicted (None: malformed), confidence


def clip(sarcasm: bool, is_pivot: bool = False, prosody: Any = None) -> dict[str, Any]:
    return {"utterance": "Great.", "sarcasm": sarcasm, "is_pivot": is_pivot, "prosody": prosody}


def judged(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    return [
        score_completion(
            f"c{index:03}",
            clip(gold == SARCASTIC),
            MALFORMED if predicted is None else format_answer("Hm.", predicted, confidence),
            True,
            9,
        )
        for index, (gold, predicted, confidence) in enumerate(answers)
    ]


def apart(records: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {record["clip_id"]: record["clip_id"] for record in records}


def in_pairs(records: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {record["clip_id"]: f"s{index // 2}" for index, record in enumerate(records)}


def four_records() -> list[dict[str, Any]]:
    return [
        score_completion("1_1", clip(True, True, PROSODY), SURE_SARCASTIC, True, 70),
        score_completion("1_2", clip(False, True, PROSODY), SURE_SARCASTIC, True, 70),
        score_completion("1_3", clip(True, False, PROSODY), MALFORMED, False, 100),
        score_completion("1_4", clip(True), SURE_SARCASTIC, False, 60),
    ]


def test_summary_counts_every_judged_clip() -> None:
    records = four_records()
    summary = summarise(records, apart(records))
    assert summary["results"] == records
    expected = {
        "n_eval_clips": 4,
        "n_with_prosody": 3,
        "n_correct": 2,
        "n_well_formed": 3,
        "n_strict": 2,
        "n_ended": 2,
        "accuracy": 0.5,
        "majority_accuracy": 0.75,
        "well_formed_rate": 0.75,
        "strict_rate": 0.5,
        "mean_reward": (0.93 + 0.37 + 0.0 + 0.93) / 4,
        "mean_confidence": (0.8 + 0.8 + 0.5 + 0.8) / 4,
        "mean_tokens": 75.0,
        "pivot_in_eval": 2,
        "pivot_correct": 1,
    }
    assert {key: summary[key] for key in expected} == pytest.approx(expected)
    assert summary["reward_parts"] == pytest.approx(
        {"correctness": (0.9 + 0.1 + 0 + 0.9) / 4, "reasoning_length": 0.75, "format": 0.75}
    )
    assert summary["accuracy_interval"] == list(wilson_interval(2, 4))
    assert summary["well_formed_interval"] == list(wilson_interval(3, 4))
    assert summary["strict_interval"] == list(wilson_interval(2, 4))
    low, high = summary["mean_reward_interval"]
    assert 0 <= low < summary["mean_reward"] < high <= 0.93


def test_summary_is_strict_json_and_keeps_the_seeds_keys() -> None:
    summary = summarise(four_records(), apart(four_records()))
    assert summary.keys() >= {
        "n_eval_clips", "mean_reward", "well_formed_rate", "accuracy", "pivot_in_eval",
        "pivot_correct", "results",
    }  # fmt: skip
    assert strict_json.loads(strict_json.dumps(summary)) == summary


def test_summary_does_not_share_its_records_with_the_caller() -> None:
    records = four_records()
    summary = summarise(records, apart(records))
    records[0]["correct"] = False
    assert summary["results"][0]["correct"] is True


# Sarcastic: 5 clips, of which 3 hits, 1 miss, 1 malformed. Sincere: 3 clips, 2 hits, 1 miss.
EIGHT = judged(
    [(SARCASTIC, SARCASTIC, 0.9)] * 3
    + [(SARCASTIC, SINCERE, 0.6), (SARCASTIC, None, 0.5)]
    + [(SINCERE, SINCERE, 0.7)] * 2
    + [(SINCERE, SARCASTIC, 0.8)]
)


def test_precision_recall_and_f1_by_hand() -> None:
    summary = summarise(EIGHT, apart(EIGHT))
    assert summary["confusion"] == {
        SARCASTIC: {SARCASTIC: 3, SINCERE: 1, "malformed": 1},
        SINCERE: {SARCASTIC: 1, SINCERE: 2, "malformed": 0},
    }
    precision, recall, f1 = (3 / 4, 2 / 3), (3 / 5, 2 / 3), (6 / 9, 4 / 6)
    for name, (sarcastic, sincere) in {"precision": precision, "recall": recall, "f1": f1}.items():
        assert summary[f"{name}_macro"] == pytest.approx((sarcastic + sincere) / 2)
        assert summary[f"{name}_weighted"] == pytest.approx((5 * sarcastic + 3 * sincere) / 8)
    assert summary["recall_weighted"] == pytest.approx(summary["accuracy"])


@pytest.mark.parametrize("average", ["weighted", "macro"])
def test_f1_of_a_resample_is_scikit_learns_of_the_drawn_clips(average: str) -> None:
    gold = np.array([record["gold"] for record in EIGHT])
    predicted = np.array([record["predicted"] or "malformed" for record in EIGHT])
    # Single clips, so that some resamples lack a label altogether.
    resamples = Resamples.of([f"{index}" for index in range(8)], n_resamples=300)
    found = f1_samples(list(gold), list(predicted), resamples)[average]
    for counts, f1 in zip(resamples.counts, found, strict=True):
        drawn = np.repeat(resamples.cluster_of, counts.astype(int))
        expected = f1_score(
            gold[drawn], predicted[drawn], labels=LABELS, average=average, zero_division=0.0
        )
        assert f1 == pytest.approx(expected)


def test_intervals_hold_their_figures_and_widen_with_scenes() -> None:
    rng = random.Random(0)
    answers = [
        (gold, gold if rng.random() < 0.7 else LABELS[gold == SARCASTIC], 0.6)
        for _ in range(40)
        for gold in [rng.choice(LABELS)] * 2
    ]
    # The second clip of a scene repeats the first.
    records = judged([answers[index - index % 2] for index in range(80)])
    one_by_one, by_scene = summarise(records, apart(records)), summarise(records, in_pairs(records))
    for name in ("f1_weighted", "f1_macro", "mean_reward", "brier"):
        narrow, wide = one_by_one[f"{name}_interval"], by_scene[f"{name}_interval"]
        assert wide[0] < narrow[0] < one_by_one[name] < narrow[1] < wide[1]
        assert wide[1] - wide[0] > 1.2 * (narrow[1] - narrow[0])  # about sqrt(2)


def test_the_seed_is_fixed() -> None:
    assert summarise(EIGHT, in_pairs(EIGHT)) == summarise(EIGHT, in_pairs(EIGHT))


answers = st.tuples(
    st.sampled_from(LABELS),
    st.sampled_from([*LABELS, None]),
    st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.8, 0.9, 1.0]),
)


@given(st.lists(answers, min_size=1, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_the_order_of_records_changes_nothing(
    given_answers: list[Answer], shuffler: random.Random
) -> None:
    records = judged(given_answers)
    scenes = in_pairs(records)
    shuffled = shuffler.sample(records, len(records))
    summary, again = summarise(records, scenes), summarise(shuffled, scenes)
    assert again.pop("results") == shuffled
    assert summary.pop("results") == records
    assert again == summary


ONE_SIDED = {"auroc", "auroc_interval"}
ALL_ALIKE = {"auroc_confidence"}
ONE_SCENE = {
    "mean_reward_interval", "f1_weighted_interval", "f1_macro_interval", "brier_interval",
    "auroc_interval",
}  # fmt: skip


@pytest.mark.parametrize(
    ("given_answers", "undefined"),
    [
        pytest.param([(SARCASTIC, None, 0.5), (SINCERE, None, 0.5)] * 4, ALL_ALIKE, id="malformed"),
        pytest.param(
            [(SARCASTIC, SARCASTIC, 1.0), (SINCERE, SINCERE, 1.0)] * 4, ALL_ALIKE, id="all-right"
        ),
        pytest.param(
            [(SARCASTIC, SINCERE, 1.0), (SINCERE, SARCASTIC, 1.0)] * 4, ALL_ALIKE, id="all-wrong"
        ),
        pytest.param(
            [(SINCERE, SINCERE, 0.9), (SINCERE, SARCASTIC, 0.7)] * 4, ONE_SIDED, id="one-label"
        ),
        pytest.param([(SINCERE, SINCERE, 0.9)], ONE_SIDED | ALL_ALIKE | ONE_SCENE, id="one-clip"),
        pytest.param(
            [(SARCASTIC, SARCASTIC, 0.0), (SINCERE, SARCASTIC, 0.0)] * 4, set(), id="confidence-0"
        ),
    ],
)
def test_what_is_undefined_is_none_and_nothing_else_is(
    given_answers: list[Answer], undefined: set[str]
) -> None:
    records = judged(given_answers)
    summary = summarise(records, apart(records))
    assert strict_json.loads(strict_json.dumps(summary)) == summary
    assert {key for key, value in summary.items() if value is None} == undefined


def test_malformed_answers_are_wrong_at_one_half() -> None:
    records = judged([(SARCASTIC, None, 0.5), (SINCERE, None, 0.5)])
    summary = summarise(records, apart(records))
    assert (summary["accuracy"], summary["well_formed_rate"], summary["f1_macro"]) == (0, 0, 0)
    assert (summary["brier"], summary["brier_skill"], summary["auroc"]) == (0.25, 0, 0.5)
    assert summary["log_loss"] == pytest.approx(math.log(2))
    assert summary["n_distinct_confidences"] == 0


def test_no_record_is_no_result() -> None:
    with pytest.raises(EvaluationError, match="no clip was judged"):
        summarise([], {})


def test_a_clip_judged_twice_is_refused() -> None:
    records = four_records()
    with pytest.raises(EvaluationError, match=r"'1_1'.*more than once"):
        summarise([*records, records[0]], apart(records))


def test_a_clip_without_a_scene_is_refused() -> None:
    with pytest.raises(EvaluationError, match=r"'1_3', '1_4'.*without a scene"):
        summarise(four_records(), {"1_1": "1_1", "1_2": "1_1"})
