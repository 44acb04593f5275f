"""The leak report: what crosses the split, in a corpus where every number can be counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subtext import strict_json
from subtext.config import DataConfig
from subtext.data.splits import divide
from subtext.evaluation.leaks import N_EXAMPLES, leak_metrics, leak_report, leak_warnings
from subtext.run_records import check_shape

MUSTARD = Path(__file__).resolve().parents[3] / "shared" / "mustard"


def clip(line: str, speaker: str, show: str, sarcasm: bool, *context: str) -> dict[str, Any]:
    return {
        "utterance": line, "speaker": speaker, "show": show, "sarcasm": sarcasm,
        "context": list(context), "context_speakers": ["E"] * len(context), "prosody": None,
    }  # fmt: skip


CLIPS = {
    "1_1": clip("Nobody could have known that.", "A", "X", True),
    "1_2": clip("Short line.", "A", "X", False),
    "1_3": clip("Another one of these.", "B", "X", False),
    "1_4": clip("Such a fine mess.", "B", "X", True, "nobody could have known THAT"),
    "1_5": clip("Short words.", "C", "Y", False),
    "1_6": clip("Such a fine mess!", "A", "X", True),
}


def split_of(train: str, held_out: str, clips: Any = CLIPS, kind: str = "random") -> dict[str, Any]:
    ids = {name: [f"1_{number}" for number in side] for name, side in
           (("train", train), ("held_out", held_out))}  # fmt: skip
    return {**ids, "kind": kind, "data_digest": "abc"}


def test_every_figure_counted_by_hand() -> None:
    report = leak_report(CLIPS, split_of("123", "456"))
    assert report["scenes"] == {
        "n_pairs_across": 1,
        "n_lines_across": 1,
        "examples": [{"clips": ["1_4", "1_1"], "line": "nobody could have known that"}],
    }
    assert report["speakers"] == {
        "n_train": 2, "n_held_out": 3, "n_both_sides": 2, "held_out_share_known": 2 / 3
    }  # fmt: skip
    assert report["shows"] == {
        "n_train": 1, "n_held_out": 2, "n_both_sides": 1, "held_out_share_known": 2 / 3
    }  # fmt: skip
    assert (report["n_train"], report["n_held_out"]) == (3, 3)
    assert report["held_out_majority"] == 2 / 3
    assert report["baselines"]["train majority"]["accuracy"] == 1 / 3
    assert "duration" not in report["baselines"]


def test_twins_too_short_to_share_a_line_cross_too() -> None:
    twins = {**CLIPS, "1_5": {**CLIPS["1_2"], "sarcasm": True}}
    report = leak_report(twins, split_of("123", "456", twins))
    assert report["scenes"]["n_pairs_across"] == 2
    assert {"clips": ["1_5", "1_2"], "line": "short line"} in report["scenes"]["examples"]


def test_a_scene_inside_one_side_does_not_cross() -> None:
    assert leak_report(CLIPS, split_of("1346", "25"))["scenes"]["n_pairs_across"] == 0


def test_clips_on_neither_side_leak_nothing() -> None:
    assert leak_report(CLIPS, split_of("12", "56"))["scenes"]["n_pairs_across"] == 0


def test_the_examples_are_few_and_the_count_is_whole() -> None:
    clips = {f"1_{i}": clip("We all say this.", "A", "X", i % 2 == 0) for i in range(20)}
    split = {"train": list(clips)[:10], "held_out": list(clips)[10:]}
    scenes = leak_report(clips, {**split, "kind": "random", "data_digest": ""})["scenes"]
    assert (scenes["n_pairs_across"], scenes["n_lines_across"]) == (100, 1)
    assert len(scenes["examples"]) == N_EXAMPLES


def test_durations_are_judged_where_both_sides_have_them() -> None:
    measured = {
        key: {**value, "prosody": {"duration_s": 1.0 + value["sarcasm"]}}
        for key, value in CLIPS.items()
    }
    assert "duration" in leak_report(measured, split_of("1234", "56"))["baselines"]


def speaking_names(n: int = 80) -> dict[str, dict[str, Any]]:
    """Half of the speakers are always sarcastic; nothing else tells."""
    return {f"1_{i}": clip(f"Line {i}.", "ABCD"[i % 4], "X", i % 2 == 0) for i in range(n)}


def test_warnings_name_what_leaks_and_what_to_do() -> None:
    clips = {**speaking_names(), **{f"2_{key}": value for key, value in CLIPS.items()}}
    train, held_out = divide(clips, DataConfig(eval_ratio=0.5), Path())
    split = {"train": sorted(train), "held_out": sorted(held_out)}
    said = list(leak_warnings(leak_report(clips, {**split, "kind": "random", "data_digest": ""})))
    assert any(line.startswith("speaker alone scores 0.9") for line in said)
    assert any("data.split=speaker" in line for line in said)
    assert not any("majority" in line for line in said)


def test_a_split_by_speaker_silences_the_warning_about_speakers() -> None:
    clips = speaking_names()
    train, held_out = divide(clips, DataConfig(split="speaker", eval_ratio=0.5), Path())
    split = {"train": sorted(train), "held_out": sorted(held_out)}
    report = leak_report(clips, {**split, "kind": "speaker", "data_digest": ""})
    assert report["speakers"]["held_out_share_known"] == 0
    assert not [line for line in leak_warnings(report) if line.startswith("speaker")]


def test_the_commoner_label_is_no_leak() -> None:
    clips = {f"1_{i}": clip(f"Line {i}.", "A", "X", i % 5 > 0) for i in range(100)}
    split = {"train": list(clips)[:50], "held_out": list(clips)[50:]}
    report = leak_report(clips, {**split, "kind": "random", "data_digest": ""})
    assert report["baselines"]["speaker"]["accuracy"] == 0.8
    assert list(leak_warnings(report)) == []


def test_metrics_have_flat_names_and_finite_values() -> None:
    metrics = leak_metrics(leak_report(CLIPS, split_of("123", "456")))
    assert metrics["leak/scene_pairs_across"] == 1
    assert metrics["leak/speakers_known_share"] == 2 / 3
    assert metrics["leak/line_context_length/accuracy"] >= 0
    assert all(isinstance(value, float) for value in metrics.values())


@settings(deadline=None, max_examples=40)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 4), st.booleans(), st.booleans()),
        min_size=2, max_size=25,
    )
)  # fmt: skip
def test_any_split_gives_a_report_that_is_strict_json_and_can_be_read_back(
    rows: list[tuple[int, int, bool, bool]],
) -> None:
    clips = {
        f"1_{i}": clip(f"This is the line {line}", f"S{name}", f"T{name % 2}", sarcasm)
        for i, (line, name, sarcasm, _) in enumerate(rows)
    }
    sides = [[f"1_{i}" for i, row in enumerate(rows) if row[3] == side] for side in (True, False)]
    if not all(sides):
        return
    split = {"train": sides[0], "held_out": sides[1], "kind": "random", "data_digest": ""}
    report = leak_report(clips, split)
    assert strict_json.loads(strict_json.dumps(report)) == report
    check_shape(Path("run/leak_report.json"), report)
    assert report == leak_report(clips, split)
    list(leak_warnings(report))
    leak_metrics(report)


@pytest.mark.skipif(not MUSTARD.is_dir(), reason="MUStARD is not beside the checkout")
def test_the_real_clips_leak_speakers_and_scenes_in_the_seeds_split() -> None:
    clips = json.loads((MUSTARD / "sarcasm_data.json").read_text())
    for kind, crossing in (("random", True), ("scene", False)):
        train, held_out = divide(clips, DataConfig(split=kind), MUSTARD)
        split = {"train": sorted(train), "held_out": sorted(held_out)}
        report = leak_report(clips, {**split, "kind": kind, "data_digest": ""})
        assert (report["scenes"]["n_pairs_across"] > 0) == crossing
        assert report["speakers"]["held_out_share_known"] > 0.95
        assert report["baselines"]["speaker"]["accuracy"] == pytest.approx(0.69, abs=0.05)
        assert any("data.split=speaker" in line for line in leak_warnings(report))
