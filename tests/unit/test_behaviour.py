"""Ways of answering that a figure hides: planted ones are named, honest ones are not."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subtext import strict_json
from subtext.answer import LABELS, SARCASTIC, SINCERE, format_answer
from subtext.config import PromptConfig
from subtext.data.scenarios import load_scenarios
from subtext.evaluation.behaviour import MIN_CLIPS, behaviour_warnings
from subtext.evaluation.records import score_completion
from subtext.policy.warm_start import teacher_answer
from subtext.prompts import build_full_observation
from subtext.prosody.reference import TERCILE_FIELDS, Reference
from subtext.prosody.render import render_pitch_contour, render_prosody_features

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
PROMPT = PromptConfig()
Policy = Callable[[str, random.Random], str]


@cache
def demo() -> dict[str, dict[str, Any]]:
    clips = load_scenarios(DEMO)
    return Reference.fit(clips, list(clips)[::2]).described_clips(clips)


def gold(clip_id: str) -> str:
    return SARCASTIC if demo()[clip_id]["sarcasm"] else SINCERE


def judged(policy: Policy, n: int = 71, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        score_completion(clip_id, demo()[clip_id], policy(clip_id, rng), True, 40)
        for clip_id in rng.sample(list(demo()), n)
    ]


def named(records: list[dict[str, Any]]) -> list[str]:
    return [warning["name"] for warning in behaviour_warnings(records, demo(), PROMPT)]


def weighed(rng: random.Random, n_words: int = 40) -> str:
    """Reasoning of the policy's own words."""
    words = "the line praises what went wrong so I doubt that it is meant while she sounds tired"
    return " ".join(rng.choice(words.split()) for _ in range(n_words))


def block_of(clip_id: str) -> str:
    record = demo()[clip_id]["prosody"]
    features, contour = (make(clip_id, record) for make in RENDERERS)
    return f"{features}\n{contour}"


RENDERERS = (render_prosody_features, render_pitch_contour)


def honest(clip_id: str, rng: random.Random) -> str:
    label = gold(clip_id) if rng.random() < 0.75 else rng.choice(LABELS)
    return format_answer(weighed(rng), label, rng.choice((0.6, 0.7, 0.8, 0.9)))


def taught(clip_id: str, rng: random.Random) -> str:
    """The warm start's own teacher, which quotes two lines of the prosody."""
    label = gold(clip_id) if rng.random() < 0.85 else rng.choice(LABELS)
    return teacher_answer(clip_id, demo()[clip_id]["prosody"], label, rng.randrange(10**6))


def constant(clip_id: str, rng: random.Random) -> str:
    return format_answer(weighed(rng), SINCERE, rng.choice((0.6, 0.7, 0.8)))


def constant_doubt(clip_id: str, rng: random.Random) -> str:
    return format_answer(weighed(rng), rng.choice(LABELS), 0.5)


def copying(clip_id: str, rng: random.Random) -> str:
    return format_answer(block_of(clip_id), rng.choice(LABELS), rng.random())


def copying_lines(clip_id: str, rng: random.Random) -> str:
    lines = block_of(clip_id).splitlines()
    start = rng.randrange(4)
    text = f"I hear this: {' and '.join(lines[start : start + 6])}. So be it."
    return format_answer(text, rng.choice(LABELS), rng.random())


def copying_the_transcript(clip_id: str, rng: random.Random) -> str:
    text = build_full_observation(clip_id, demo(), PROMPT).partition("=== Prosody")[0]
    return format_answer(f"{text} {weighed(rng, 5)}", rng.choice(LABELS), rng.random())


def repeating(clip_id: str, rng: random.Random) -> str:
    said = rng.choice(("The voice decides it here.", "The words alone do not settle it."))
    return format_answer(said, rng.choice(LABELS), rng.random())


def rambling(clip_id: str, rng: random.Random) -> str:
    return format_answer(f"{weighed(rng, 9)}. " * 6, rng.choice(LABELS), rng.random())


def by_one_cue(clip_id: str, rng: random.Random) -> str:
    word = demo()[clip_id]["prosody"]["words"]["f0_sd_st"]
    label = SARCASTIC if (word == "high") != (rng.random() < 0.02) else SINCERE
    return format_answer(weighed(rng), label, rng.random())


def inventing(clip_id: str, rng: random.Random) -> str:
    said = f"The pitch range is {rng.choice(('low', 'medium', 'high'))} and tempo: fast"
    return format_answer(f"{said}. {weighed(rng)}", rng.choice(LABELS), rng.random())


def silent(clip_id: str, rng: random.Random) -> str:
    return "I would rather not say."


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(honest, [], id="honest"),
        pytest.param(taught, [], id="the warm start's teacher"),
        pytest.param(constant, ["constant_answers"], id="one label for all"),
        pytest.param(constant_doubt, ["constant_answers"], id="p = 0.5 for all"),
        pytest.param(copying, ["copied_prosody"], id="the prosody block word for word"),
        pytest.param(copying_lines, ["copied_prosody"], id="six lines of it"),
        pytest.param(copying_the_transcript, ["copied_transcript"], id="the transcript"),
        pytest.param(repeating, ["repeated_reasoning"], id="two sentences for all clips"),
        pytest.param(rambling, ["repeated_reasoning"], id="one sentence over and over"),
        pytest.param(by_one_cue, ["one_cue"], id="pitch variation alone decides"),
        pytest.param(inventing, ["contradicted_prosody"], id="cues that the prompt denies"),
        pytest.param(silent, ["malformed_answers"], id="no answer"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_planted_policies(policy: Policy, expected: list[str], seed: int) -> None:
    assert named(judged(policy, seed=seed)) == expected


def test_a_copying_policy_that_answers_by_a_cue_is_named_for_both() -> None:
    def copier(clip_id: str, rng: random.Random) -> str:
        label = SARCASTIC if "pitch variation: high" in block_of(clip_id) else SINCERE
        return format_answer(block_of(clip_id), label, 0.9)

    records = judged(copier)
    # It looks good: far better than half.
    assert sum(record["correct"] for record in records) / len(records) > 0.6
    assert named(records) == ["one_cue", "copied_prosody"]
    (one_cue, _) = behaviour_warnings(records, demo(), PROMPT)
    assert '"pitch variation" alone gives the label of 71 of 71' in one_cue["message"]


def test_who_answers_by_one_cue_and_better_than_it_hears_more() -> None:
    def better(clip_id: str, rng: random.Random) -> str:
        word = demo()[clip_id]["prosody"]["words"]["f0_sd_st"]
        by_cue = SARCASTIC if word == "high" else SINCERE
        wrong = by_cue != gold(clip_id)
        label = gold(clip_id) if wrong and rng.random() < 0.15 else by_cue
        return format_answer(weighed(rng), label, rng.random())

    records = judged(better, n=200)
    assert named(records) == []


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9, 0.93])
def test_labels_drawn_blindly_are_not_taken_for_a_cue(share: float) -> None:
    def blind(clip_id: str, rng: random.Random) -> str:
        label = SINCERE if rng.random() < share else SARCASTIC
        return format_answer(weighed(rng), label, rng.random())

    n_named = sum("one_cue" in named(judged(blind, n=40, seed=seed)) for seed in range(20))
    assert n_named == 0


@pytest.mark.parametrize(("n_other", "expected"), [(2, ["constant_answers"]), (3, [])])
def test_the_limit_of_one_label_for_all(n_other: int, expected: list[str]) -> None:
    others = iter([SARCASTIC] * n_other)

    def nearly_constant(clip_id: str, rng: random.Random) -> str:
        return format_answer(weighed(rng), next(others, SINCERE), rng.random())

    assert named(judged(nearly_constant, n=40)) == expected


def test_malformed_answers_do_not_hide_that_the_others_are_the_same() -> None:
    def often_silent(clip_id: str, rng: random.Random) -> str:
        return constant(clip_id, rng) if rng.random() < 0.7 else silent(clip_id, rng)

    assert "constant_answers" in named(judged(often_silent, n=60))


def test_a_handful_of_clips_proves_nothing() -> None:
    assert named(judged(constant, n=MIN_CLIPS)) == ["constant_answers"]
    assert named(judged(constant, n=MIN_CLIPS - 1)) == []


def test_a_reasoning_that_the_record_cut_still_counts() -> None:
    records = judged(copying)
    cut = [
        {**record, "completion_text": record["completion_text"].partition("</think>")[0]}
        for record in records
    ]
    assert named(cut) == ["copied_prosody"]


def test_every_cue_of_the_prompt_is_known() -> None:
    for clip_id, clip in demo().items():
        assert clip["prosody"]["words"].keys() <= set(TERCILE_FIELDS)
        features = render_prosody_features(clip_id, clip["prosody"])
        records = [
            score_completion(clip_id, clip, format_answer(f"{line} x", SINCERE, 0.5), True, 9)
            for line in features.splitlines()
            if not line.startswith("doubtful")
        ]
        break
    # Said of a clip without prosody, each cue is made up.
    without = {**demo(), clip_id: {**clip, "prosody": None}}
    warnings = behaviour_warnings(records * 3, without, PROMPT)
    n = 3 * len(records)
    message = next(w["message"] for w in warnings if w["name"] == "contradicted_prosody")
    assert message.startswith(f"{n} of the {n} times")


@settings(max_examples=25, deadline=None)
@given(texts=st.lists(st.text(max_size=60), min_size=MIN_CLIPS, max_size=30), think=st.booleans())
def test_any_text_gives_strict_json_and_never_raises(texts: list[str], think: bool) -> None:
    records = [
        score_completion(
            clip_id, demo()[clip_id], f"<think>{text}</think>" if think else text, True, 9
        )
        for clip_id, text in zip(demo(), texts, strict=False)
    ]
    clips = dict(list(demo().items())[:40])
    for prompt in (PROMPT, PromptConfig(header="seed", speaker="named")):
        found = behaviour_warnings(records, clips, prompt)
        assert strict_json.loads(strict_json.dumps(found)) == found
