"""Thresholds and speakers' pitch: fitted on training clips alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from subtext import strict_json
from subtext.data.scenarios import load_clips
from subtext.prosody.from_tracks import records_from_npz
from subtext.prosody.reference import (
    LEVELS,
    MIN_CLIPS,
    MIN_VALUES,
    PUBLISHED,
    TERCILE_FIELDS,
    Reference,
)

TRACKS = Path(__file__).resolve().parents[3] / "shared" / "mustard" / "tracks_210.npz"


def record(**changes: Any) -> dict[str, Any]:
    return {
        "f0_median_hz": 200.0,
        "f0_sd_st": 3.0,
        "pause_count": 0,
        "pause_longest_s": 0.0,
        "contour_st": [0.0] * 10,
    } | changes


def clips(records: list[dict[str, Any] | None], speaker: str = "ANNA") -> dict[str, dict[str, Any]]:
    return {
        f"c{index:03}": {"speaker": speaker, "sarcasm": bool(index % 2), "prosody": item}
        for index, item in enumerate(records)
    }


def test_terciles_are_those_of_the_training_clips() -> None:
    values = np.linspace(0, 9, 30)
    scenarios = clips([record(f0_sd_st=float(value)) for value in values])
    reference = Reference.fit(scenarios, scenarios)
    assert reference.terciles["f0_sd_st"] == (3.0, 6.0)
    assert reference.source["f0_sd_st"] == "training clips"
    words = [
        clip["prosody"]["words"]["f0_sd_st"]
        for clip in reference.described_clips(scenarios).values()
    ]
    assert [words.count(level) for level in LEVELS] == [10, 10, 10]


@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=30), st.data())
def test_held_out_clips_shape_nothing(values: list[float], data: st.DataObject) -> None:
    scenarios = clips([record(f0_sd_st=value, f0_median_hz=80 + value) for value in values])
    train = data.draw(st.sets(st.sampled_from(sorted(scenarios))))
    changed = {
        clip_id: clip
        if clip_id in train
        else {**clip, "speaker": "BEN", "sarcasm": None, "prosody": record(f0_sd_st=1.0)}
        for clip_id, clip in scenarios.items()
    }
    assert Reference.fit(scenarios, train) == Reference.fit(changed, train)


def test_labels_shape_nothing() -> None:
    scenarios = clips([record(f0_sd_st=float(value)) for value in range(20)])
    flipped = {key: {**clip, "sarcasm": not clip["sarcasm"]} for key, clip in scenarios.items()}
    assert Reference.fit(scenarios, scenarios) == Reference.fit(flipped, scenarios)


@pytest.mark.parametrize(
    ("n_values", "source"), [(MIN_VALUES - 1, "published"), (MIN_VALUES, "training clips")]
)
def test_too_few_values_leave_the_published_terciles(n_values: int, source: str) -> None:
    scenarios = clips([record(f0_sd_st=float(value)) for value in range(n_values)])
    reference = Reference.fit(scenarios, scenarios)
    assert reference.source["f0_sd_st"] == source
    published = reference.terciles["f0_sd_st"] == PUBLISHED.terciles["f0_sd_st"]
    assert published == (source == "published")


@pytest.mark.parametrize(
    ("n_clips", "level_st", "said"),
    [(MIN_CLIPS - 1, None, "none"), (MIN_CLIPS, 12.0, "speaker")],
)
def test_the_level_is_relative_to_the_speaker(
    n_clips: int, level_st: float | None, said: str
) -> None:
    scenarios = clips([record(f0_median_hz=100.0)] * n_clips)
    described = Reference.fit(scenarios, scenarios).described(record(f0_median_hz=200.0), "ANNA")
    assert (described["f0_level_st"], described["f0_level_reference"]) == (level_st, said)


def test_an_unvoiced_clip_of_a_known_speaker_has_a_reference_and_no_level() -> None:
    scenarios = clips([record()] * MIN_CLIPS)
    described = Reference.fit(scenarios, scenarios).described(record(f0_median_hz=None), "ANNA")
    assert (described["f0_level_st"], described["f0_level_reference"]) == (None, "speaker")
    assert "f0_level_st" not in described["words"]


def test_clips_without_prosody_stay_without() -> None:
    scenarios = clips([None, record()])
    described = Reference.fit(scenarios, scenarios).described_clips(scenarios)
    assert described["c000"]["prosody"] is None
    assert "words" not in scenarios["c001"]["prosody"], "the clips given are left as they are"


def test_a_clip_without_pause_has_no_word_for_the_longest() -> None:
    assert "pause_longest_s" not in PUBLISHED.described(record(), "ANNA")["words"]
    paused = record(pause_count=1, pause_longest_s=0.5)
    assert PUBLISHED.described(paused, "ANNA")["words"]["pause_longest_s"] == "high"


@given(st.lists(st.floats(60, 400), max_size=20))
def test_the_record_gives_the_reference_back(medians_hz: list[float]) -> None:
    scenarios = clips([record(f0_median_hz=value) for value in medians_hz])
    reference = Reference.fit(scenarios, scenarios)
    text = strict_json.dumps(reference.record())
    assert Reference.of_record(strict_json.loads(text)) == reference
    assert set(reference.terciles) == set(TERCILE_FIELDS)


def without(name: str) -> dict[str, Any]:
    return {key: limits for key, limits in PUBLISHED.record()["terciles"].items() if key != name}


def terciles(limits: list[Any], name: str = "f0_sd_st") -> dict[str, Any]:
    return {"terciles": {**PUBLISHED.record()["terciles"], name: limits}}


@pytest.mark.parametrize(
    ("changes", "loc", "said"),
    [
        pytest.param({"terciles": {}}, "terciles", "lacks", id="no terciles"),
        pytest.param({"terciles": without("f0_sd_st")}, "terciles", "lacks f0_sd", id="one less"),
        pytest.param(terciles([1, 2], "pitch"), "terciles", "no such fields: pitch", id="one more"),
        pytest.param(terciles([5, 1]), "terciles.f0_sd_st", "lower limit above", id="inverted"),
        pytest.param(terciles([1]), "terciles.f0_sd_st.1", "required", id="one limit"),
        pytest.param(terciles(["1", 2]), "terciles.f0_sd_st.0", "valid number", id="text"),
        pytest.param(terciles([False, True]), "terciles.f0_sd_st.0", "valid number", id="true"),
        pytest.param(terciles([1, np.inf]), "terciles.f0_sd_st.1", "finite", id="infinite"),
        pytest.param({"speakers_hz": {"ANNA": 0}}, "speakers_hz.ANNA", "to 20", id="0 Hz divides"),
        pytest.param({"speakers_hz": {"ANNA": -5}}, "speakers_hz.ANNA", "to 20", id="below 0: NaN"),
        pytest.param({"speakers_hz": {"ANNA": 1e308}}, "speakers_hz.ANNA", "to 2000", id="no tone"),
        pytest.param({"speakers_hz": {"ANNA": "120"}}, "speakers_hz.ANNA", "number", id="text Hz"),
        pytest.param({"source": {}}, "source", "lacks", id="no source"),
        pytest.param(
            {"source": {**PUBLISHED.source, "f0_sd_st": "me"}}, "source.f0_sd_st", "published",
            id="unknown source",
        ),
        pytest.param({"extra": 1}, "extra", "not permitted", id="more than is read"),
    ],
)  # fmt: skip
def test_a_record_that_gives_no_reference_is_refused(
    changes: dict[str, Any], loc: str, said: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        Reference.of_record({**PUBLISHED.record(), **changes})
    detail = caught.value.errors()[0]
    assert ".".join(map(str, detail["loc"])) == loc
    assert said in detail["msg"]


def test_whole_speakers_held_out_leave_no_level() -> None:
    scenarios = clips([record()] * MIN_CLIPS)
    reference = Reference.fit(scenarios, scenarios, with_speakers=False)
    assert reference.described(record(), "ANNA")["f0_level_reference"] == "none"


@pytest.mark.skipif(not TRACKS.exists(), reason="no ../shared/mustard beside the checkout")
def test_the_published_terciles_are_those_of_the_210_measured_clips() -> None:
    spoken = load_clips(TRACKS.parent / "sarcasm_data.json")
    utterances = {clip_id: clip["utterance"] for clip_id, clip in spoken.items()}
    records = records_from_npz(TRACKS, utterances)["clips"]
    scenarios = {
        clip_id: {"speaker": spoken[clip_id]["speaker"], "prosody": found}
        for clip_id, found in records.items()
    }
    fitted = Reference.fit(scenarios, scenarios).terciles
    for name, limits in PUBLISHED.terciles.items():
        decimals = 2 if name in ("pause_longest_s", "voiced_fraction") else 1
        assert limits == tuple(round(limit, decimals) for limit in fitted[name]), name
