"""The prompt: golden texts, and nothing that tells speaker, show, clip or length when blind."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtext.answer import parse_final
from subtext.config import PromptConfig
from subtext.data.masking import Cast, masked_clip
from subtext.data.scenarios import load_scenarios
from subtext.prompts import (
    SEED_PROMPT,
    SYSTEM_PROMPT,
    build_full_observation,
    build_messages,
    system_prompt,
)

GOLDEN = Path(__file__).parent / "golden"
MUSTARD = Path(__file__).resolve().parents[3] / "shared" / "mustard"

BLIND = PromptConfig(header="blind", speaker="masked", cue_rules=False)
RECORD: dict[str, Any] = {
    "duration_s": 3.02,
    "f0_median_hz": 187.31,
    "f0_sd_st": 2.06,
    "f0_range_st": 9.4,
    "f0_slope_st_per_s": 1.66,
    "f0_final_slope_st_per_s": None,
    "voiced_fraction": 0.48,
    "intensity_sd_db": 5.31,
    "hnr_mean_db": 12.4,
    "pause_count": 1,
    "pause_longest_s": 0.21,
    "contour_st": [None, 0.5, 1.0, None, -2.0, -3.0, -2.0, None, -3.0, -5.0],
}
CLIP: dict[str, Any] = {
    "utterance": "Ask Tobin's dog, Mirela; a person would say yes.",
    "speaker": "ODETTE",
    "context": ["MIRELA, is\nODETTE coming?", "PERSON said HARBOUR was shut.", "Tobin!"],
    "context_speakers": ["PERSON", "MIRELA", "PERSON"],
    "show": "HARBOUR",
    "sarcasm": True,
    "prosody": RECORD,
    "is_pivot": False,
}
OTHER: dict[str, Any] = {
    **CLIP,
    "utterance": "Fine.",
    "speaker": "TOBIN",
    "context": [],
    "context_speakers": [],
    "prosody": None,
}
SCENARIOS = {"1_60": CLIP, "1_61": OTHER}
PROMPTS = {
    "seed": SEED_PROMPT,
    "blind_masked": BLIND,
    "blind_named": PromptConfig(header="blind", speaker="named", cue_rules=True),
    "seed_masked": PromptConfig(header="seed", speaker="masked", cue_rules=False),
}


@pytest.mark.parametrize("name", PROMPTS)
@pytest.mark.parametrize("clip_id", SCENARIOS)
def test_the_prompt_is_the_golden_one(name: str, clip_id: str) -> None:
    system, user = build_messages(clip_id, SCENARIOS, PROMPTS[name])
    assert (system["role"], user["role"]) == ("system", "user")
    golden = GOLDEN / f"prompt_{name}_{clip_id}.txt"
    text = f"{system['content']}\n----\n{user['content']}\n"
    assert text == golden.read_text(encoding="utf-8")


def test_the_seed_prompt_is_the_default() -> None:
    assert build_full_observation("1_60", SCENARIOS) == build_full_observation(
        "1_60", SCENARIOS, SEED_PROMPT
    )
    assert build_messages("1_60", SCENARIOS)[0]["content"] == SYSTEM_PROMPT


def test_the_seed_header_says_unknown_rather_than_0_seconds() -> None:
    header = build_full_observation("1_61", SCENARIOS).splitlines()[0]
    assert header == "Clip 1_61 (speaker TOBIN, duration unknown)"
    measured = build_full_observation("1_60", SCENARIOS).splitlines()[0]
    assert measured == "Clip 1_60 (speaker ODETTE, duration 3.02s)"


def test_cue_rules_add_the_rules_of_thumb_and_only_they_do() -> None:
    plain = system_prompt(BLIND)
    assert system_prompt(SEED_PROMPT) == SYSTEM_PROMPT
    for word in ("variation", "flat", "pause"):
        assert word in SYSTEM_PROMPT.lower()
        assert word not in plain.lower()
    assert len(plain) < 500


@pytest.mark.parametrize("prompt", [SEED_PROMPT, BLIND], ids=["rules", "plain"])
def test_the_system_prompt_shows_the_grammar_and_is_no_answer_itself(prompt: PromptConfig) -> None:
    text = system_prompt(prompt)
    assert re.search(r"<think>.+</think>\n<final>\{.+\}</final>", text)
    assert parse_final(text) == (None, 0.5, False)
    filled = text.replace('"sarcastic"|"sincere"', '"sincere"').replace("0.0..1.0", "0.7")
    assert parse_final(filled) == ("sincere", 0.7, True)


NAMES = ["ODETTE", "Mirela", "Tobin", "Dr. Ines Moreau", "O'Hara", "Zoë", "JEAN-LUC", "WILMA"]
EMPTY_OF_NAMES = st.text("abcdefg ,.!?", min_size=1).filter(str.strip)


@st.composite
def corpora(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """Corpora whose lines call speakers of any clip by name, in several forms."""
    forms = [
        str,
        str.upper,
        str.lower,
        str.title,
        lambda name: f"{name}'s",
        lambda name: f"{name}!",
    ]
    scenarios = {}
    for index in range(draw(st.integers(1, 4))):
        speakers = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5))
        lines = []
        for _ in speakers:
            name, form = draw(st.sampled_from(NAMES)), draw(st.sampled_from(forms))
            lines.append(f"{draw(EMPTY_OF_NAMES)} {form(name)} {draw(EMPTY_OF_NAMES)}")
        scenarios[f"9_{700 + index}"] = {
            "utterance": lines[0],
            "speaker": speakers[0],
            "context": lines[1:],
            "context_speakers": speakers[1:],
            "show": draw(st.sampled_from(["HARBOUR", "NIGHTSHIFT"])),
            "sarcasm": draw(st.booleans()),
            "prosody": draw(st.sampled_from([None, RECORD])),
            "is_pivot": draw(st.booleans()),
        }
    # Everybody speaks somewhere, so that every name in a line is a speaker's name.
    everybody = {**OTHER, "context": ["x"] * len(NAMES), "context_speakers": NAMES}
    return {**scenarios, "9_800": everybody}


@given(corpora())
def test_blind_and_masked_shows_no_name_id_show_duration_or_length(
    scenarios: dict[str, dict[str, Any]],
) -> None:
    for clip_id, clip in scenarios.items():
        text = build_full_observation(clip_id, scenarios, BLIND)
        for name in [*NAMES, "Moreau", "Ines"]:
            assert name.casefold() not in text.casefold()
        assert clip_id not in text
        assert clip["show"] not in text
        assert not re.search(r"duration|word count|\b3\.02\b|\b187\b", text)


RENAMED = {"ODETTE": "ABBA", "MIRELA": "BRUCE", "TOBIN": "CARLA"}


@given(
    clip_id=st.from_regex(r"[12]_[0-9]{1,5}", fullmatch=True),
    show=st.sampled_from(["HARBOUR", "QUAY"]),
    duration_s=st.floats(0.7, 30),
    sarcasm=st.booleans(),
    is_pivot=st.booleans(),
    rename=st.booleans(),
)
def test_blind_and_masked_depends_on_words_and_relative_prosody_alone(
    clip_id: str, show: str, duration_s: float, sarcasm: bool, is_pivot: bool, rename: bool
) -> None:
    text = json.dumps({"other": OTHER})
    clip = json.dumps(CLIP).replace("HARBOUR", show)
    if rename:
        for old, new in RENAMED.items():
            text = text.replace(old, new).replace(old.title(), new.title())
            clip = clip.replace(old, new).replace(old.title(), new.title())
    changed = json.loads(clip) | {"sarcasm": sarcasm, "is_pivot": is_pivot}
    changed["prosody"] = {**RECORD, "duration_s": duration_s}
    scenarios = {**json.loads(text), clip_id: changed}
    assert build_full_observation(clip_id, scenarios, BLIND) == build_full_observation(
        "1_60", SCENARIOS, BLIND
    )


MASKING_CASES = [
    ("bearer speaks here", "Ask Mirela.", "Ask Speaker B."),
    ("the speaker's own name", "I am Odette!", "I am Speaker A!"),
    ("bearer speaks elsewhere", "Ask Tobin.", "Ask [name]."),
    ("possessive", "Tobin's and Mirela\u2019s", "[name]'s and Speaker B\u2019s"),
    ("capitals and lower case", "TOBIN, mirela", "[name], Speaker B"),
    ("plural", "two Tobins", "two [name]s"),
    ("stutter", "T-Tobin", "T-[name]"),
    ("part of a word", "Tobinesque", "Tobinesque"),
    ("first name of two", "Ask Ines.", "Ask [name]."),
    ("both names across white space", "Ines\n Moreau", "[name]"),
    ("name that is a word, with a capital", "Rose rose.", "[name] rose."),
    ("label as a word", "A person left.", "A person left."),
    ("label as written", "PERSON left.", "[name] left."),
    ("show", "HARBOUR, a harbour", "[show], a harbour"),
    ("nickname of MUStARD's cast", "Pheebs and Wolowitz", "[name] and [name]"),
    ("MUStARD name as a word", "in bloom, not Bloom", "in bloom, not [name]"),
]


@pytest.mark.parametrize(
    ("line", "expected"),
    [case[1:] for case in MASKING_CASES],
    ids=[case[0] for case in MASKING_CASES],
)
def test_a_name_inside_a_line(line: str, expected: str) -> None:
    clip = {**OTHER, "speaker": "ODETTE", "context": ["x"], "context_speakers": ["MIRELA"]}
    clip["utterance"] = line
    speakers = ["ROSE", "PERSON", "Ines Moreau", "TOBIN"]
    others = {**OTHER, "context": ["x"] * 4, "context_speakers": speakers}
    masked = masked_clip(clip, Cast.of({"a": {**clip, "utterance": "x"}, "b": others}))
    assert masked["utterance"] == expected
    assert masked["speaker"] == "Speaker A"
    assert masked["context_speakers"] == ["Speaker B"]


def test_the_target_is_always_speaker_a_and_the_same_name_the_same_letter() -> None:
    clip = {**CLIP, "context_speakers": ["Tobin", "TOBIN", "odette"]}
    masked = masked_clip(clip, Cast.of({"x": clip}))
    assert masked["speaker"] == "Speaker A"
    assert masked["context_speakers"] == ["Speaker B", "Speaker B", "Speaker A"]


def test_letters_go_on_after_z() -> None:
    speakers = [f"NAME{'X' * index}" for index in range(1, 30)]
    clip = {**CLIP, "context": ["x"] * 29, "context_speakers": speakers}
    letters = masked_clip(clip, Cast.of({"x": clip}))["context_speakers"]
    assert letters[24:27] == ["Speaker Z", "Speaker AA", "Speaker AB"]
    assert len(set(letters)) == 29


def test_masking_leaves_the_clip_itself_alone() -> None:
    before = json.dumps(CLIP)
    masked_clip(CLIP, Cast.of(SCENARIOS))
    assert json.dumps(CLIP) == before


@pytest.mark.skipif(not MUSTARD.is_dir(), reason="the real MUStARD data is not beside the checkout")
def test_no_speakers_name_is_left_in_the_real_clips(tmp_path: Path) -> None:
    shutil.copy(MUSTARD / "sarcasm_data.json", tmp_path)
    scenarios = load_scenarios(tmp_path)
    speakers = {name for clip in scenarios.values() for name in clip["context_speakers"]}
    names = "|".join(
        form
        for name in {clip["speaker"] for clip in scenarios.values()} | speakers
        for form in (name, *([] if "PERSON" in name or "MEMBER" in name else [name.title()]))
        if name != "MODERATOR"
    )
    found = re.compile(rf"\b(?:{names})(?:s|\b)")
    assert found.search("Ask Sheldon.")
    for clip_id in scenarios:
        text = build_full_observation(clip_id, scenarios, BLIND)
        assert not found.search(text)
        assert clip_id not in text
        assert text == build_full_observation(clip_id, {clip_id: scenarios[clip_id]}, BLIND)
