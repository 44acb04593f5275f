"""`subtext data validate`: what a corpus folder holds, and every fault of it, at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.corpus import write_corpus
from typer.testing import CliRunner

from subtext import strict_json
from subtext.cli.main import app
from subtext.data.scenarios import load_scenarios
from subtext.data.splits import divide
from subtext.data.validate import REPORT_SCHEMA, validate
from subtext.errors import DataError
from subtext.profiles import resolve

ROOT = Path(__file__).resolve().parents[2]
MUSTARD = ROOT.parent / "shared" / "mustard"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "140"})


def edit(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_counts_agree_with_the_loaded_clips(root: Path) -> None:
    report = validate(root)
    scenarios = load_scenarios(root)
    counts = report.counts
    assert report.ok
    assert counts["clips"] == len(scenarios) == 40
    assert counts["sarcastic"] == counts["sincere"] == 20
    assert counts["prosody"]["clips"] == sum(c["prosody"] is not None for c in scenarios.values())
    assert sum(counts["shows"].values()) == sum(counts["speakers"].values()) == 40
    assert counts["scenes"]["shared_lines"] > 0
    assert counts["pivot"] == {"present": False, "clips": 0, "strata": {}}
    assert any("Clips without prosody: 5" in note for note in report.notes)


def test_the_table_names_everything_and_ends_with_0(root: Path) -> None:
    result = invoke("data", "validate", str(root))
    assert result.exit_code == 0, result.output
    for name in ("clips", "shows", "speakers", "prosody", "quality flags", "sound files",
                 "same texts", "scenes", "Pivot Set", "problems"):  # fmt: skip
        assert f"│ {name} " in result.output
    assert "40: 20 sarcastic, 20 sincere" in result.output


def test_a_folder_without_clips_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"sarcasm_data\.json.*flows.data_flow --source mustard"):
        validate(tmp_path)


def test_sound_of_an_unreadable_clip_is_not_called_an_orphan(root: Path) -> None:
    (root / "audio").mkdir()
    (root / "audio" / "1_100.wav").touch()
    edit(root / "sarcasm_data.json", lambda clips: clips["1_100"].pop("utterance"))
    assert [problem.field for problem in validate(root).problems] == ["utterance"]


def test_json_is_strict_has_stable_keys_and_is_all_that_is_printed(root: Path) -> None:
    result = invoke("data", "validate", str(root), "--json")
    assert result.exit_code == 0
    report = strict_json.loads(result.stdout)
    assert report.keys() == {"schema", "ok", "root", "counts", "notes", "problems"}
    assert report["counts"].keys() == {
        "clips", "sarcastic", "sincere", "speakers", "shows", "prosody", "audio", "texts",
        "scenes", "pivot",
    }  # fmt: skip
    assert (report["schema"], report["ok"], report["problems"]) == (REPORT_SCHEMA, True, [])


@pytest.mark.parametrize(
    ("n_missing", "last"),
    [
        pytest.param(2, "could not be measured: is silent", id="all of few"),
        pytest.param(25, '5 more could not be measured: "missing" in prosody.json', id="of many"),
    ],
)
def test_clips_that_could_not_be_measured_are_named_with_the_reason(
    root: Path, n_missing: int, last: str
) -> None:
    clip_ids = list(load_scenarios(root))[:n_missing]

    def change(content: dict[str, Any]) -> None:
        content["clips"] = {k: v for k, v in content["clips"].items() if k not in clip_ids}
        content["missing"] = dict.fromkeys([*clip_ids, "no_clip"], "is silent")

    edit(root / "prosody.json", change)
    report = validate(root)
    assert report.ok
    assert report.counts["prosody"]["missing"] == dict.fromkeys(clip_ids, "is silent")
    told = [note for note in report.notes if "could not be measured" in note]
    assert told[0] == f"{clip_ids[0]} could not be measured: is silent"
    assert last in told[-1]


def test_a_list_of_missing_clips_that_is_none_ends_nothing(root: Path) -> None:
    edit(root / "prosody.json", lambda content: content.update(missing=["1_100"]))
    assert validate(root).counts["prosody"]["missing"] == {}


def test_twins_duplicates_and_lines_with_both_labels_are_notes_not_problems(root: Path) -> None:
    def change(clips: dict[str, Any]) -> None:
        first, second, third, fourth = list(clips)[:4]
        for twin, of, sarcasm in ((second, first, False), (fourth, third, True)):
            clips[twin] = {**clips[of], "sarcasm": sarcasm}
        clips[first]["utterance"] = clips[second]["utterance"] = "WELL, an unheard of thing."
        clips[second]["utterance"] = "Well an unheard of thing"

    edit(root / "sarcasm_data.json", change)
    report = validate(root)
    assert report.ok
    assert report.counts["texts"]["identical"] == 2
    assert report.counts["texts"]["minimal_pairs"] == 1
    assert report.counts["texts"]["lines_with_both_labels"] >= 1
    assert any("duplicates?" in note for note in report.notes)


def _orphan(root: Path) -> None:
    (root / "audio").mkdir()
    (root / "audio" / "9_9.wav").write_bytes(b"")


def _two_files(root: Path) -> None:
    (root / "audio").mkdir()
    for name in ("1_100.wav", "1_100.FLAC"):
        (root / "audio" / name).write_bytes(b"")


def _old_schema(root: Path) -> None:
    edit(root / "prosody.json", lambda content: content.update(schema="subtext.prosody/1"))


def _two_extractors(root: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["clips"]["1_100"]["voiced_s"] = 0.4

    edit(root / "prosody.json", change)


def _broken_clips(root: Path) -> None:
    (root / "sarcasm_data.json").write_text("{")


def _bad_label(root: Path) -> None:
    edit(root / "sarcasm_data.json", lambda clips: clips["1_100"].update(sarcasm="yes"))


def _not_a_number(root: Path) -> None:
    edit(root / "prosody.json", lambda c: c["clips"]["1_100"].update(f0_sd_st=float("nan")))


def _half_surrogate(root: Path) -> None:
    edit(root / "sarcasm_data.json", lambda clips: clips["1_100"].update(show="\ud800"))


def _flags_that_are_none(root: Path) -> None:
    edit(root / "prosody.json", lambda c: c["clips"]["1_100"].update(quality=[1, None, {}, []]))


def _half_extractor(root: Path) -> None:
    edit(root / "prosody.json", lambda content: content.update(extractor="\ud800"))


def _half_schema(root: Path) -> None:
    edit(root / "prosody.json", lambda content: content.update(schema="\ud800"))


def _half_field(root: Path) -> None:
    edit(root / "sarcasm_data.json", lambda clips: clips["1_100"].update({"\ud800": 1}))


def _one_label(root: Path) -> None:
    def change(clips: dict[str, Any]) -> None:
        for clip in clips.values():
            clip["sarcasm"] = True

    edit(root / "sarcasm_data.json", change)


def _one_sincere_clip(root: Path) -> None:
    _one_label(root)
    edit(root / "sarcasm_data.json", lambda clips: clips["1_100"].update(sarcasm=False))


def _stale_pivot(root: Path) -> None:
    edit(root / "pivot_set.json", lambda content: content.update(digest="0"))


def _pivot_of_a_stranger(root: Path) -> None:
    strict_json.write(root / "pivot_set.json", {"clips": {"9_9": {}}})


@pytest.mark.parametrize(
    ("damage", "where", "said"),
    [
        (_orphan, "audio", "belong to no clip"),
        (_two_files, "audio", "several sound files"),
        (_old_schema, "prosody.json", "no known version"),
        (_two_extractors, "prosody.json", "two extractors"),
        (_broken_clips, "sarcasm_data.json", "not JSON"),
        (_bad_label, "sarcasm_data.json, clip 1_100", "not true or false"),
        (_not_a_number, "prosody.json, clip 1_100", "not a finite number"),
        (_half_surrogate, "sarcasm_data.json, clip 1_100", "surrogate"),
        (_pivot_of_a_stranger, "pivot_set.json, clip 9_9", "is not in"),
        (_flags_that_are_none, "prosody.json, clip 1_100", "flag"),
        (_half_extractor, "prosody.json", "surrogate"),
        (_half_schema, "prosody.json", "surrogate"),
        (_half_field, "sarcasm_data.json, clip 1_100", "not Unicode"),
        (_one_label, "sarcasm_data.json", "no split has both labels"),
        (_one_sincere_clip, "sarcasm_data.json", "no split has both labels"),
    ],
)
def test_every_fault_is_a_problem_with_a_remedy_and_exit_code_1(
    root: Path, damage: Callable[[Path], None], where: str, said: str
) -> None:
    damage(root)
    result = invoke("data", "validate", str(root), "--json")
    assert result.exit_code == 1, result.output
    report = strict_json.loads(result.stdout)
    assert not report["ok"]
    assert any(p["where"] == where and said in p["problem"] for p in report["problems"])
    assert all(p["remedy"] for p in report["problems"])
    table = invoke("data", "validate", str(root))
    assert table.exit_code == 1
    assert "Problem:" in table.output


def test_two_clips_of_each_label_are_enough_and_one_clip_is_not(tmp_path: Path) -> None:
    two_of_each = write_corpus(tmp_path / "four", n_clips=4)
    assert validate(two_of_each).ok
    held_out = {"data": {"root": str(two_of_each), "split": "stratified", "eval_ratio": 0.5}}
    divide(load_scenarios(two_of_each), resolve("cpu", held_out).data, two_of_each)
    (problem,) = validate(write_corpus(tmp_path / "one", n_clips=1)).problems
    assert (problem.field, problem.value) == ("sarcasm", "1 sarcastic, 0 sincere")


@pytest.mark.parametrize("name", ["[x]", "a[/b]", "n\udcff"], ids=["tag", "end of tag", "no UTF-8"])
def test_a_folder_of_any_name_is_shown(tmp_path: Path, name: str) -> None:
    root = write_corpus(tmp_path / name)
    for arguments in ([], ["--json"]):
        result = invoke("data", "validate", str(root), *arguments)
        assert result.exit_code == 0, result.output
        assert name.replace("\udcff", "?") in result.output


def test_links_to_nothing_and_folders_are_no_sound_files(root: Path) -> None:
    folder, link, file = (root / "audio" / f"{i}.wav" for i in list(load_scenarios(root))[:3])
    folder.mkdir(parents=True)
    link.symlink_to("gone.wav")
    file.write_bytes(b"")
    assert validate(root).counts["audio"] == {"clips": 1, "files": 1}


def test_of_very_many_problems_the_table_shows_the_first(root: Path) -> None:
    strict_json.write(root / "pivot_set.json", {"clips": {f"id{i}": {} for i in range(250)}})
    shown = invoke("data", "validate", str(root)).output
    assert shown.count("Problem:") == 100
    assert "150 more problems: --json lists all." in shown
    report = strict_json.loads(invoke("data", "validate", str(root), "--json").stdout)
    assert len(report["problems"]) == 250


def test_a_pivot_set_of_other_clips_is_a_problem(root: Path) -> None:
    def voiced(content: dict[str, Any]) -> None:
        for record in content["clips"].values():
            record["voiced_s"] = 0.6

    edit(root / "prosody.json", voiced)
    made = invoke("data", "pivot", str(root), "--set", "n_repeats=1")
    assert made.exit_code == 0, made.output
    report = validate(root)
    assert report.ok
    assert sum(report.counts["pivot"]["strata"].values()) == report.counts["pivot"]["clips"] > 0
    _stale_pivot(root)
    problems = [p for p in validate(root).problems if p.field == "digest"]
    assert len(problems) == 1
    assert "subtext data pivot" in problems[0].remedy


def test_a_pivot_list_of_ones_own_is_noted(root: Path) -> None:
    strict_json.write(root / "pivot_set.json", {"clips": {"1_100": {}}})
    report = validate(root)
    assert report.ok
    assert any("names no schema" in note for note in report.notes)


def test_sound_files_are_counted_and_other_files_ignored(root: Path) -> None:
    (root / "audio").mkdir()
    for name in ("1_100.mp4", ".1_100.wav", "README.md"):
        (root / "audio" / name).write_bytes(b"")
    report = validate(root)
    assert report.ok
    assert report.counts["audio"] == {"clips": 1, "files": 1}
    assert any("Clips without a sound file: 39" in note for note in report.notes)


def test_a_folder_that_is_not_there_is_a_message_with_exit_code_2(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no folder"):
        validate(tmp_path / "gone")
    result = subprocess.run(
        [sys.executable, "-m", "subtext.cli", "data", "validate", "gone"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 2
    assert str(tmp_path / "gone") in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(not MUSTARD.is_dir(), reason="the real MUStARD data is not beside the checkout")
def test_real_mustard_has_the_scenes_of_the_science_notes() -> None:
    report = validate(MUSTARD)
    assert report.ok
    counts = report.counts
    assert (counts["clips"], counts["sarcastic"], counts["sincere"]) == (690, 345, 345)
    assert counts["shows"]["FRIENDS"] == 356
    assert counts["speakers"]["CHANDLER"] == 158
    assert counts["scenes"]["of_several_clips"] == 17
    assert counts["scenes"]["largest"] == 4
    assert counts["prosody"]["clips"] == 0
