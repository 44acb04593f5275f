"""The record of a judged clip: what was read, what it scored, what p_sarcastic and strict mean."""

from __future__ import annotations

from typing import Any

import pytest

from subtext.answer import format_answer
from subtext.evaluation.records import score_completion

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
        "p_sarcastic": 0.8,
        "correct": True,
        "well_formed": True,
        "strict": True,
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


@pytest.mark.parametrize(
    ("text", "p_sarcastic"),
    [
        pytest.param(format_answer("", "sarcastic", 0.8), 0.8, id="sarcastic"),
        pytest.param(format_answer("", "sincere", 0.8), 0.2, id="sincere-ties-with-0.2-sarcastic"),
        pytest.param(format_answer("", "sincere", 0.0), 1.0, id="sincere-but-surely-not"),
        pytest.param('<final>{"label":"sincere"}</final>', 0.5, id="no-confidence-stated"),
        pytest.param("sarcastic, 0.9", 0.5, id="malformed"),
    ],
)
@pytest.mark.parametrize("sarcasm", [True, False])
def test_p_sarcastic_follows_the_answer_and_not_the_label(
    text: str, p_sarcastic: float, sarcasm: bool
) -> None:
    assert score_completion("1", clip(sarcasm), text, True, 9)["p_sarcastic"] == p_sarcastic


@pytest.mark.parametrize(
    ("text", "ended", "well_formed", "strict"),
    [
        pytest.param(SURE_SARCASTIC, True, True, True, id="to-the-letter"),
        pytest.param(SURE_SARCASTIC, False, True, False, id="cut-off-by-the-token-limit"),
        pytest.param(SURE_SARCASTIC + " And", True, True, False, id="goes-on-after-the-answer"),
        pytest.param("Hm.", True, False, False, id="malformed"),
    ],
)
def test_strict_is_an_answer_to_the_letter_that_the_model_ended(
    text: str, ended: bool, well_formed: bool, strict: bool
) -> None:
    record = score_completion("1", clip(True), text, ended, 9)
    assert (record["well_formed"], record["strict"]) == (well_formed, strict)
