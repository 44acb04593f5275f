"""Altered prompts: what changes, what stays, and what is said of planted policies."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subtext import strict_json
from subtext.answer import LABELS as ANSWERS
from subtext.answer import format_answer
from subtext.config import Ablation, PromptConfig
from subtext.data.masking import Cast
from subtext.data.scenarios import load_scenarios
from subtext.data.scenes import scene_of
from subtext.errors import EvaluationError
from subtext.evaluation.ablations import (
    HIDDEN,
    LABELS,
    ablation_table,
    altered,
    compare_ablation,
)
from subtext.evaluation.records import score_completion
from subtext.prompts import build_full_observation
from subtext.prosody.reference import Reference

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
NAMES = get_args(Ablation)
SHUFFLES = ("shuffled", "shuffled_within_label", "shuffled_within_speaker")
PROMPTS = (PromptConfig(), PromptConfig(speaker="named"), PromptConfig(header="seed"))

Clips = dict[str, dict[str, Any]]


@cache
def demo() -> Clips:
    """Described clips, a record missing here and there."""
    clips = load_scenarios(DEMO)
    for clip_id in list(clips)[::9]:
        clips[clip_id] = {**clips[clip_id], "prosody": None}
    return Reference.fit(clips, list(clips)[::2]).described_clips(clips)


def judged(n: int = 60) -> list[str]:
    return random.Random(4).sample(list(demo()), n)


def sections(clips: Clips, clip_id: str, prompt: PromptConfig) -> dict[str, str]:
    """The parts of one prompt, by their heading."""
    text = build_full_observation(clip_id, clips, prompt, Cast.of(demo()))
    return {part.splitlines()[0]: part for part in text.split("\n\n")}


# --- the prompts -------------------------------------------------------------------------------


def test_every_ablation_has_a_label() -> None:
    assert tuple(LABELS) == NAMES
    assert len(set(LABELS.values())) == len(NAMES)


CHANGED = {
    "no_prosody": {"=== Prosody features ===", "=== Pitch contour ==="},
    "prosody_only": {"=== Transcript ==="},
    "mirrored_contour": {"=== Prosody features ===", "=== Pitch contour ==="},
    "masked_speaker": {"=== Transcript ==="},
    **{name: {"=== Prosody features ===", "=== Pitch contour ==="} for name in SHUFFLES},
}


@pytest.mark.parametrize("prompt", PROMPTS, ids=["blind", "named", "seed header"])
@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_changes_in_its_own_sections_only(name: Ablation, prompt: PromptConfig) -> None:
    before, ids = copy.deepcopy(demo()), judged()
    clips, used = altered(name, demo(), ids, prompt)
    assert demo() == before
    assert list(clips) == list(before)
    changed: set[str] = set()
    for clip_id in ids:
        full, ablated = sections(before, clip_id, prompt), sections(clips, clip_id, used)
        header = {part for part in full if part.startswith("Clip ")}
        if not header:
            assert list(full) == list(ablated)
        changed |= {part for part in full if full[part] != ablated.get(part)} - header
    masked_already = name == "masked_speaker" and prompt.speaker == "masked"
    assert changed == (set() if masked_already else CHANGED[name])
    for clip_id in set(before) - set(ids):
        assert clips[clip_id] == before[clip_id]


def test_without_prosody_the_prompt_says_so() -> None:
    clips, _ = altered("no_prosody", demo(), judged(), PromptConfig())
    for clip_id in judged():
        text = build_full_observation(clip_id, clips, PromptConfig())
        assert text.count("prosody: not available") == 2


def test_with_prosody_only_every_transcript_is_the_same() -> None:
    named = PromptConfig(speaker="named")
    clips, prompt = altered("prosody_only", demo(), judged(), named)
    transcripts = {sections(clips, clip_id, prompt)["=== Transcript ==="] for clip_id in judged()}
    assert transcripts == {
        "=== Transcript ===\nContext:\n"
        f"Speaker A: {HIDDEN}\nLine to judge:\nSpeaker A: {HIDDEN}"
    }  # fmt: skip


def test_a_masked_speaker_is_in_no_prompt() -> None:
    named = PromptConfig(speaker="named")
    clips, prompt = altered("masked_speaker", demo(), judged(), named)
    for clip_id in judged():
        name = demo()[clip_id]["speaker"]
        assert name in build_full_observation(clip_id, clips, named)
        assert name not in build_full_observation(clip_id, clips, prompt)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(SHUFFLES), seed=st.integers(0, 99), n=st.integers(1, 40), data=st.data()
)
def test_a_shuffle_moves_every_record_within_its_group(
    name: Ablation, seed: int, n: int, data: st.DataObject
) -> None:
    ids = data.draw(st.permutations(judged(n)))
    key: Callable[[dict[str, Any]], object] = {
        "shuffled": lambda clip: None,
        "shuffled_within_label": lambda clip: clip["sarcasm"],
        "shuffled_within_speaker": lambda clip: clip["speaker"],
    }[name]
    clips, _ = altered(name, demo(), ids, PromptConfig(), seed)
    assert clips == altered(name, demo(), sorted(ids), PromptConfig(), seed)[0]
    # Which clip each record came from; no two records of the corpus are the same object.
    home = {id(clip["prosody"]): clip_id for clip_id, clip in demo().items() if clip["prosody"]}
    measured = [clip_id for clip_id in ids if demo()[clip_id]["prosody"]]
    came_from = {clip_id: home[id(clips[clip_id]["prosody"])] for clip_id in measured}
    assert sorted(came_from.values()) == sorted(measured)
    for clip_id, donor in came_from.items():
        group = key(demo()[clip_id])
        assert key(demo()[donor]) == group
        alone = [key(demo()[other]) for other in measured].count(group) == 1
        assert (donor == clip_id) == alone
    for clip_id in ids:
        assert {**clips[clip_id], "prosody": 0} == {**demo()[clip_id], "prosody": 0}


def test_another_seed_shuffles_otherwise() -> None:
    found = [altered("shuffled", demo(), judged(), PromptConfig(), seed)[0] for seed in (0, 1)]
    assert found[0] != found[1]


def test_a_mirrored_record_counted_by_hand() -> None:
    record = {
        "contour_st": [1.0, None, 0.0, -2.5], "f0_slope_st_per_s": 2.0,
        "f0_final_slope_st_per_s": None, "f0_final_move_st": -1.5, "f0_sd_st": 3.0,
        "words": {"f0_slope_st_per_s": "high", "f0_sd_st": "high"},
    }  # fmt: skip
    clips = {"1_1": {"prosody": record, "sarcasm": True}, "1_2": {"prosody": None}}
    mirrored = altered("mirrored_contour", clips, ["1_1", "1_2"], PromptConfig())[0]
    assert mirrored["1_1"]["prosody"] == {
        **record, "contour_st": [-1.0, None, 0.0, 2.5], "f0_slope_st_per_s": -2.0,
        "f0_final_move_st": 1.5, "words": {"f0_slope_st_per_s": "low", "f0_sd_st": "high"},
    }  # fmt: skip
    assert mirrored["1_2"]["prosody"] is None


def test_mirroring_twice_gives_the_clip_back_and_no_negative_zero() -> None:
    once, prompt = altered("mirrored_contour", demo(), judged(), PromptConfig())
    assert once != demo()
    assert altered("mirrored_contour", once, judged(), prompt)[0] == demo()
    assert not re.search(r"-0\.0\b", strict_json.dumps(once))


# --- the comparison ----------------------------------------------------------------------------


def answered(choose: Callable[[str, dict[str, Any]], str], clips: Clips) -> list[dict[str, Any]]:
    """Records of a policy that reads the prompts of `clips`; the gold labels are the true ones."""
    return [
        score_completion(clip_id, demo()[clip_id], choose(clip_id, clips[clip_id]), True, 9)
        for clip_id in judged()
    ]


def by_prosody(clip_id: str, clip: dict[str, Any]) -> str:
    """A policy that hears the truth, which is planted in the records, and guesses without."""
    heard = clip["prosody"] and clip["prosody"].get("truth")
    return format_answer("I hear it.", heard or ANSWERS[sum(map(ord, clip_id)) % 2], 0.9)


def by_words(clip_id: str, clip: dict[str, Any]) -> str:
    return format_answer("I read it.", ANSWERS[len(clip["utterance"]) % 2], 0.6)


def planted() -> Clips:
    return {
        clip_id: {
            **clip,
            "prosody": clip["prosody"]
            and {**clip["prosody"], "truth": ANSWERS[not clip["sarcasm"]]},
        }
        for clip_id, clip in demo().items()
    }


def family(choose: Callable[[str, dict[str, Any]], str], **strata: str) -> dict[str, Any]:
    full = answered(choose, planted())
    ablated = {
        name: answered(choose, altered(name, planted(), judged(), PromptConfig())[0])
        for name in NAMES
    }
    return ablation_table(full, ablated, dict.fromkeys(NAMES, 60), scene_of(demo()), strata)


def test_a_policy_that_hears_loses_by_what_takes_its_hearing_away() -> None:
    table = family(by_prosody)
    assert list(table) == list(NAMES)
    for name in ("no_prosody", "shuffled"):
        assert table[name]["verdict"] == "better"
        assert table[name]["difference"] > 0.2
        assert table[name]["interval"][0] > 0
        assert 0.2 < table[name]["flip_rate"] < 0.8
    for name in ("shuffled_within_label", "mirrored_contour", "masked_speaker", "prosody_only"):
        assert table[name]["verdict"] == "not distinguishable"
        assert (table[name]["difference"], table[name]["flip_rate"]) == (0, 0)


def test_a_policy_that_only_reads_loses_nothing_by_prosody() -> None:
    table = family(by_words)
    for name in ("no_prosody", *SHUFFLES, "mirrored_contour"):
        assert table[name]["flip_rate"] == table[name]["mean_p_change"] == 0
        assert table[name]["verdict"] == "not distinguishable"
    assert table["prosody_only"]["flip_rate"] > 0.2


def records(*rows: tuple[str, str]) -> list[dict[str, Any]]:
    """One record a (answer, gold): "s" sarcastic, "n" sincere, "m" malformed; confidence 0.8."""
    found = []
    for index, (said, gold) in enumerate(rows):
        text = "?" if said == "m" else format_answer("So.", ANSWERS[said == "n"], 0.8)
        clip = {"sarcasm": gold == "s"}
        found.append(score_completion(f"1_{index}", clip, text, True, 5))
    return found


def test_every_figure_counted_by_hand() -> None:
    full = records(("s", "s"), ("n", "n"), ("s", "n"), ("m", "s"))
    ablated = records(("n", "s"), ("m", "n"), ("s", "n"), ("m", "s"))
    scenes = {f"1_{i}": f"1_{i}" for i in range(4)}
    strata = {"1_0": "ambiguous", "1_3": "misleading"}
    row = compare_ablation("no_prosody", full, ablated[::-1], 3, scenes, strata)
    assert row["label"] == "no prosody"
    assert (row["n"], row["n_prompts_changed"]) == (4, 3)
    assert (row["accuracy_full"], row["accuracy"], row["difference"]) == (0.5, 0.0, 0.5)
    assert (row["n_only_full"], row["n_only_ablated"], row["p_value"]) == (2, 0, 0.5)
    assert row["flip_rate"] == 0.5
    assert row["mean_p_change"] == pytest.approx((0.6 + 0.3) / 4)
    assert list(row["strata"]) == ["ambiguous", "misleading", "rest"]
    ambiguous, misleading, rest = row["strata"].values()
    assert (ambiguous["n"], ambiguous["difference"], ambiguous["flip_rate"]) == (1, 1.0, 1.0)
    assert (misleading["n"], misleading["difference"], misleading["flip_rate"]) == (1, 0.0, 0.0)
    assert (rest["n"], rest["accuracy_full"], rest["flip_rate"]) == (2, 0.5, 0.5)


def test_without_a_pivot_set_there_are_no_strata() -> None:
    full = records(("s", "s"), ("n", "n"))
    scenes = {"1_0": "a", "1_1": "b"}
    assert compare_ablation("shuffled", full, full, 0, scenes, {})["strata"] == {}
    everything = compare_ablation("shuffled", full, full, 0, scenes, {"9_9": "ambiguous"})
    assert list(everything["strata"]) == ["rest"]


def test_passes_over_different_clips_are_refused() -> None:
    full = records(("s", "s"), ("n", "n"))
    with pytest.raises(EvaluationError):
        compare_ablation("shuffled", full, full[:1], 0, {"1_0": "a", "1_1": "b"}, {})


def answers() -> st.SearchStrategy[list[tuple[str, str]]]:
    return st.lists(st.tuples(st.sampled_from("snm"), st.sampled_from("sn")), min_size=1)


@settings(max_examples=8, deadline=None)
@given(rows=answers(), seed=st.integers(0, 99))
def test_any_answers_give_strict_json_and_strata_that_add_up(
    rows: list[tuple[str, str]], seed: int
) -> None:
    rng = random.Random(seed)
    full = records(*rows)
    ablated = {
        name: records(*((rng.choice("snm"), gold) for _, gold in rows)) for name in NAMES[:3]
    }
    scenes = {record["clip_id"]: rng.choice("abc") for record in full}
    strata = {key: "ambiguous" for key in scenes if rng.random() < 0.4}
    table = ablation_table(full, ablated, dict.fromkeys(ablated, 1), scenes, strata)
    assert strict_json.loads(strict_json.dumps(table)) == table
    for row in table.values():
        parts = list(_all_strata(row))
        assert not parts or sum(n for n, _ in parts) == row["n"]
        assert not parts or sum(n * d for n, d in parts) == pytest.approx(
            row["n"] * row["difference"]
        )
        assert row["difference"] == pytest.approx(row["accuracy_full"] - row["accuracy"])
        assert row["p_holm"] >= row["p_value"]


def _all_strata(row: dict[str, Any]) -> Iterator[tuple[int, float]]:
    for figures in row["strata"].values():
        yield figures["n"], figures["difference"]
