"""The Pivot Set: selected by words and sound quality alone, without leaks, the same every time."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corpus import write_corpus
from typer.testing import CliRunner

from subtext import strict_json
from subtext.cli.main import app
from subtext.data.pivot.committee import draw_folds, fold_scores, make_committee, text_scores
from subtext.data.pivot.file import (
    PivotConfig,
    inadmissible_reason,
    parse_config,
    pivot_digest,
    pivot_problems,
    pivot_strata,
    select_pivot,
)
from subtext.data.pivot.make import make_pivot_set, pivot_set
from subtext.data.scenarios import load_scenarios
from subtext.data.scenes import scene_of
from subtext.errors import ConfigError, DataError
from subtext.progress import Progress
from subtext.prosody.from_tracks import records_from_npz

ROOT = Path(__file__).resolve().parents[2]
MUSTARD = ROOT.parent / "shared" / "mustard"
QUICK = PivotConfig(n_repeats=1)
WORDS = ("boat", "soup", "lamp", "train", "garden", "letter", "window", "cousin", "noise", "coat")

needs_mustard = pytest.mark.skipif(
    not MUSTARD.is_dir(), reason="the real MUStARD data is not beside the checkout"
)


def clip(line: str, sarcasm: bool, *context: str, voiced_s: float | None = 2.0) -> dict[str, Any]:
    return {
        "utterance": line, "speaker": "MIRELA", "context": list(context),
        "context_speakers": ["TOBIN"] * len(context), "show": "HARBOUR", "sarcasm": sarcasm,
        "prosody": None if voiced_s is None else {"voiced_s": voiced_s, "quality": []},
    }  # fmt: skip


def corpus(n: int = 60, *, telling: float = 0.8, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Clips in scenes of their own; a share of the lines holds a word that tells the label."""
    rng = random.Random(seed)
    clips = {}
    for index in range(n):
        sarcasm = index % 2 == 0
        words = [rng.choice(WORDS) for _ in range(4)]
        if rng.random() < telling:
            words.append("marvellous" if sarcasm else "tuesday")
        elif rng.random() < 0.5:
            words.append("tuesday" if sarcasm else "marvellous")
        rng.shuffle(words)
        clips[f"c{index:03d}"] = clip(" ".join(words), sarcasm, f"{rng.choice(WORDS)} {index}")
    return clips


def pairs(n: int = 24) -> dict[str, dict[str, Any]]:
    """Minimal pairs: the same words, sarcastic once and sincere once."""
    rng = random.Random(1)
    clips = {}
    for index in range(n):
        line = " ".join(rng.choice(WORDS) for _ in range(5)) + f" {index}"
        for sarcasm in (True, False):
            clips[f"p{index:02d}_{int(sarcasm)}"] = clip(line, sarcasm)
    return clips


def score(t: float, *members: float) -> dict[str, Any]:
    given = members or (t, t, t)
    return {"text_score": t, "members": {f"m{i}": value for i, value in enumerate(given)}}


# --- the rule ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sarcasm", "expected"),
    [
        pytest.param(score(0.35), True, "misleading", id="sarcastic, reads sincere, at the edge"),
        pytest.param(score(0.3501), True, None, id="just above the edge"),
        pytest.param(score(0.35), False, None, id="sincere and reads sincere is easy"),
        pytest.param(score(0.65), False, "misleading", id="sincere, reads sarcastic, at the edge"),
        pytest.param(score(0.65), True, None, id="sarcastic and reads sarcastic is easy"),
        pytest.param(score(0.6), True, "ambiguous", id="0.6 - 0.5 counts as 0.1"),
        pytest.param(score(0.4), True, "ambiguous", id="0.5 - 0.4 counts as 0.1"),
        pytest.param(score(0.6001), True, None, id="just outside"),
        pytest.param(score(0.3, 0.2, 0.2, 0.5), True, "misleading", id="0.5 takes no side"),
        pytest.param(score(0.3, 0.1, 0.2, 0.6), True, "ambiguous", id="split before misleading"),
        pytest.param(score(0.3, 0.1, 0.2, 0.6), False, "ambiguous", id="split, whatever the label"),
        pytest.param(score(0.38, 0.36, 0.36, 0.55), True, None, id="both sides but close"),
    ],
)
def test_strata_follow_the_thresholds(given, sarcasm, expected) -> None:
    selected = select_pivot({"a": given}, {"a": clip("x", sarcasm)}, PivotConfig())
    assert selected.get("a", {}).get("stratum") == expected


@given(
    st.floats(0, 1).map(lambda t: round(t, 4)),
    st.lists(st.floats(0, 1).map(lambda p: round(p, 4)), min_size=3, max_size=3),
)
def test_ambiguity_never_depends_on_the_label(t: float, members: list[float]) -> None:
    found = []
    for sarcasm in (True, False):
        selected = select_pivot({"a": score(t, *members)}, {"a": clip("x", sarcasm)}, QUICK)
        found.append(selected.get("a", {}).get("stratum") == "ambiguous")
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        pytest.param(None, "no prosody", id="nothing measured"),
        pytest.param({}, "voiced_s not measured", id="another extractor's record"),
        pytest.param({"voiced_s": 0.49}, "too little voice", id="below"),
        pytest.param({"voiced_s": 0.5}, "", id="at the limit, no flags written"),
        pytest.param({"voiced_s": 3, "quality": ["clipped"]}, "quality: clipped", id="clipped"),
        pytest.param({"voiced_s": 3, "quality": ["no_voice"]}, "quality: no_voice", id="no voice"),
        pytest.param({"voiced_s": 3, "quality": ["octave_jumps"]}, "", id="other flags are fine"),
    ],
)
def test_admissibility_is_by_sound_alone(record, reason) -> None:
    assert inadmissible_reason(record, PivotConfig()) == reason


# --- the committee -----------------------------------------------------------------------------


def test_words_that_tell_are_found_and_words_that_mislead_are_misleading() -> None:
    clips = corpus(120, telling=0.8)
    content = pivot_set(clips, QUICK)
    assert content["text_accuracy"]["all"] > 0.75
    assert content["text_accuracy"]["misleading"] == 0
    assert content["counts"]["misleading"]["sarcastic"] > 0
    for entry in content["clips"].values():
        if entry["stratum"] == "misleading":
            assert (entry["text_score"] > 0.5) == (entry["label"] == "sincere")


def test_permuted_labels_leave_the_committee_near_chance() -> None:
    accuracies = []
    for seed in range(4):
        clips = corpus(80, telling=1.0)
        labels = [c["sarcasm"] for c in clips.values()]
        random.Random(seed).shuffle(labels)
        for c, label in zip(clips.values(), labels, strict=True):
            c["sarcasm"] = label
        accuracies.append(pivot_set(clips, QUICK)["text_accuracy"]["all"])
    assert np.mean(accuracies) < 0.6


def test_twins_get_one_score_and_are_ambiguous() -> None:
    clips = pairs()
    content = pivot_set(clips, QUICK)
    for clip_id in clips:
        twin = clip_id[:-1] + str(1 - int(clip_id[-1]))
        assert content["text_scores"][clip_id] == content["text_scores"][twin]
    assert {entry["stratum"] for entry in content["clips"].values()} == {"ambiguous"}
    assert len(content["clips"]) == len(clips)
    assert content["text_accuracy"]["all"] == 0.5


def test_short_twins_that_differ_by_a_masked_name_stay_together() -> None:
    names = ("TOBIN", "PELLA")
    clips = {
        i: {**c, "utterance": f"Great {i[1:3]}, {names[int(i[-1])].title()}.", "context": [],
            "context_speakers": [], "speaker": names[int(i[-1])]}
        for i, c in pairs().items()
    }  # fmt: skip
    assert len(set(scene_of(clips).values())) == len(clips)
    scores = text_scores(clips, QUICK)
    assert all(scores[f"{i[:-1]}0"] == scores[f"{i[:-1]}1"] for i in clips)


def test_no_score_depends_on_a_label_of_its_own_fold() -> None:
    clips = corpus()
    ids = sorted(clips)
    labels = np.array([clips[i]["sarcasm"] for i in ids], dtype=np.int64)
    members, scenes = make_committee(clips, ids)
    folds = draw_folds(labels, scenes, 5, 0)
    before = fold_scores(list(members.values()), labels, folds)
    for fold in range(5):
        flipped = np.where(folds == fold, 1 - labels, labels)
        after = fold_scores(list(members.values()), flipped, folds)
        np.testing.assert_array_equal(before[0][folds == fold], after[0][folds == fold])
        np.testing.assert_array_equal(before[1][:, folds == fold], after[1][:, folds == fold])
        assert not np.array_equal(before[0], after[0])


def test_a_scene_is_never_divided_between_folds() -> None:
    clips = corpus(60)
    for index in range(0, 60, 3):
        for member in range(3):
            clips[f"c{index + member:03d}"]["context"] = [f"we were in scene {index} together"]
    ids = sorted(clips)
    labels = np.array([clips[i]["sarcasm"] for i in ids], dtype=np.int64)
    _, scenes = make_committee(clips, ids)
    folds = draw_folds(labels, scenes, 5, 0)
    assert all(len(set(folds[i : i + 3])) == 1 for i in range(0, 60, 3))


def test_speaker_and_show_do_not_reach_the_committee() -> None:
    plain, named = corpus(), corpus()
    for c in named.values():
        c["speaker"] = "CASPIAN" if c["sarcasm"] else "WILMA"
        c["show"] = "NIGHTSHIFT" if c["sarcasm"] else "ALLOTMENT"
    assert text_scores(named, QUICK) == text_scores(plain, QUICK)


def test_a_spoken_name_is_masked() -> None:
    def naming(sarcastic: str, sincere: str) -> dict[str, Any]:
        clips = corpus(40)
        for c in clips.values():
            c["utterance"] += f", {sarcastic if c['sarcasm'] else sincere}"
        clips["x1"] = {**clip("the lamp again", True), "speaker": "CASPIAN"}
        clips["x2"] = {**clip("the soup again", False), "speaker": "INGRID"}
        return clips

    assert text_scores(naming("Caspian", "Ingrid"), QUICK) == text_scores(
        naming("Caspian", "Caspian"), QUICK
    )


# --- the file ----------------------------------------------------------------------------------


def test_the_bytes_do_not_depend_on_the_order_of_clips() -> None:
    clips = corpus()
    shuffled = dict(random.Random(3).sample(list(clips.items()), len(clips)))
    assert strict_json.dumps(pivot_set(clips, QUICK)) == strict_json.dumps(
        pivot_set(shuffled, QUICK)
    )


def test_another_seed_gives_other_folds() -> None:
    clips = corpus()
    assert text_scores(clips, QUICK) != text_scores(clips, PivotConfig(n_repeats=1, seed=1))


def test_the_bytes_do_not_depend_on_threads(tmp_path: Path) -> None:
    (tmp_path / "clips.json").write_text(json.dumps(corpus()))
    code = (
        "import json, sys; from subtext.data.pivot.make import pivot_set;"
        "from subtext.data.pivot.file import PivotConfig; from subtext import strict_json;"
        "c = json.load(open(sys.argv[1]));"
        "sys.stdout.write(strict_json.dumps(pivot_set(c, PivotConfig(n_repeats=1))))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "clips.json")], cwd=ROOT, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2",
             "OPENBLAS_NUM_THREADS": "2", "PYTHONHASHSEED": "7"},
        capture_output=True, timeout=120,
    ).stdout  # fmt: skip
    assert output == strict_json.dumps(pivot_set(corpus(), QUICK)).encode()


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), st.booleans(),
            st.sampled_from([None, 0.1, 2.0]),
        ),
        min_size=1, max_size=30,
    )
)  # fmt: skip
def test_any_small_corpus_gives_a_consistent_set_or_a_clear_error(drawn) -> None:
    clips = {f"c{i}": clip(t, y, voiced_s=v) for i, (t, y, v) in enumerate(drawn)}
    try:
        content = pivot_set(clips, PivotConfig(n_folds=3, n_repeats=1))
    except DataError as error:
        assert all(problem.remedy for problem in error.problems)
        return
    content = strict_json.loads(strict_json.dumps(content))
    assert list(pivot_problems(content, clips)) == []
    assert content["text_scores"].keys() == clips.keys()
    assert all(clips[i]["prosody"]["voiced_s"] >= 0.5 for i in content["clips"])


def _other_label(content: dict[str, Any], clips: dict[str, Any]) -> None:
    clips["c000"]["sarcasm"] = not clips["c000"]["sarcasm"]


def _other_text(content: dict[str, Any], clips: dict[str, Any]) -> None:
    clips["c000"]["utterance"] += " indeed"


def _clip_added(content: dict[str, Any], clips: dict[str, Any]) -> None:
    clips["new"] = clip("one more line", True)


def _by_hand(content: dict[str, Any], clips: dict[str, Any]) -> None:
    content["clips"].popitem()


def _threshold_moved(content: dict[str, Any], clips: dict[str, Any]) -> None:
    content["config"]["ambiguous_within"] = 0.0
    content["config"]["split_spread"] = 1.0


def _prosody_lost(content: dict[str, Any], clips: dict[str, Any]) -> None:
    clips[next(iter(content["clips"]))]["prosody"] = None


def _score_gone(content: dict[str, Any], clips: dict[str, Any]) -> None:
    content["text_scores"].popitem()


def _nonsense(content: dict[str, Any], clips: dict[str, Any]) -> None:
    content["text_scores"] = [1, 2]


def _later_version(content: dict[str, Any], clips: dict[str, Any]) -> None:
    content["schema"] = "subtext.pivot/9"


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return pivot_set(corpus(), QUICK)


@pytest.mark.parametrize(
    ("damage", "field"),
    [(_other_label, "digest"), (_other_text, "digest"), (_clip_added, "digest"),
     (_score_gone, "digest"), (_by_hand, "clips"), (_threshold_moved, "clips"),
     (_prosody_lost, "clips"), (_nonsense, "text_scores"), (_later_version, "schema")],
)  # fmt: skip
def test_a_set_that_no_longer_fits_is_refused(
    made: dict[str, Any], damage: Callable[..., None], field: str
) -> None:
    content, clips = copy.deepcopy(made), corpus()
    assert list(pivot_problems(content, clips)) == []
    damage(content, clips)
    (problem,) = pivot_problems(content, clips)
    assert problem.field == field
    assert "subtext data pivot" in problem.remedy


def test_a_list_of_ones_own_is_not_checked() -> None:
    assert list(pivot_problems({"clips": {"c000": {"why": "mine"}}}, corpus())) == []


def test_the_digest_ignores_order_and_prosody() -> None:
    clips = corpus()
    reordered = {i: {**clips[i], "prosody": None} for i in reversed(clips)}
    assert pivot_digest(clips) == pivot_digest(reordered)


@pytest.mark.parametrize(
    ("n", "change", "said"),
    [
        pytest.param(20, {"prosody": None}, "no clip is admissible", id="no prosody"),
        pytest.param(6, {}, "too few", id="six clips"),
        pytest.param(20, {"sarcasm": True}, "too few", id="one class"),
        pytest.param(20, {"context": ["all of us together here"]}, "too few", id="one scene"),
    ],
)
def test_impossible_corpora_are_refused_with_the_reason(n, change, said) -> None:
    clips = {clip_id: {**c, **change} for clip_id, c in corpus(n).items()}
    with pytest.raises(DataError, match=said):
        pivot_set(clips, QUICK)


# --- configuration and command -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("n_fold=4", "Did you mean n_folds"), ("n_folds=two", "n_folds"), ("n_folds=2", "n_folds"),
        ("misleading_below=0.45", "smaller than 0.05"), ("seed", "name=value"),
        ("refused_flags=[\"laughter\"]", "refused_flags"), ("min_voiced_s=NaN", "min_voiced_s"),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(assignment: str, said: str) -> None:
    given = [assignment]
    if assignment.startswith("misleading"):
        given.append("ambiguous_within=0.06")
    with pytest.raises(ConfigError, match=said):
        parse_config(given)


def test_settings_reach_the_file() -> None:
    config = parse_config(["n_folds=3", "n_repeats=1", "refused_flags=[]"])
    assert pivot_set(corpus(), config)["config"] == config.model_dump(mode="json")


def voiced_corpus(root: Path) -> Path:
    path = write_corpus(root, n_clips=80) / "prosody.json"
    content = strict_json.read(path)
    for record in content["clips"].values():
        record["voiced_s"] = round(record["duration_s"] * record["voiced_fraction"], 3)
    strict_json.write(path, content)
    return root


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "120"})


def test_the_command_writes_a_set_that_loads(tmp_path: Path) -> None:
    root = voiced_corpus(tmp_path / "corpus")
    result = invoke("data", "pivot", str(root), "--set", "n_repeats=1")
    assert result.exit_code == 0, result.output
    content = strict_json.read(root / "pivot_set.json")
    for expected in ("ambiguous", "misleading", "text_easy", f"subtext data validate {root}"):
        assert expected in result.output.replace("\n", "")
    scenarios = load_scenarios(root)
    assert {i for i, c in scenarios.items() if c["is_pivot"]} == content["clips"].keys()
    assert content["clips"]


def test_strata_are_read_from_a_set_and_from_nothing_else(tmp_path: Path) -> None:
    demo = ROOT / "data" / "demo"
    strata = pivot_strata(demo)
    assert strata.keys() == {key for key, clip in load_scenarios(demo).items() if clip["is_pivot"]}
    assert set(strata.values()) <= {"ambiguous", "misleading"}
    assert pivot_strata(tmp_path) == {}
    strict_json.write(tmp_path / "pivot_set.json", {"clips": {"1_1": {"why": "mine"}}})
    assert pivot_strata(tmp_path) == {}


def test_who_watches_sees_every_folding(tmp_path: Path) -> None:
    seen: list[Progress] = []
    make_pivot_set(voiced_corpus(tmp_path / "corpus"), PivotConfig(n_repeats=2), seen.append)
    assert [(item.stage, item.step, item.max_steps) for item in seen] == [
        ("pivot", step, 2) for step in range(3)
    ]


def test_a_stale_set_is_replaced(tmp_path: Path) -> None:
    root = voiced_corpus(tmp_path / "corpus")
    fresh = make_pivot_set(root, QUICK)
    stale = {**fresh, "digest": "0", "clips": {"gone": {}}}
    strict_json.write(root / "pivot_set.json", stale)
    assert make_pivot_set(root, QUICK) == fresh
    (root / "pivot_set.json").write_text("{")
    assert make_pivot_set(root, QUICK) == fresh


def test_without_prosody_the_command_refuses_and_writes_nothing(tmp_path: Path) -> None:
    root = write_corpus(tmp_path / "corpus", with_prosody=False)
    result = invoke("data", "pivot", str(root))
    assert isinstance(result.exception, DataError)
    assert "from-tracks" in str(result.exception)
    assert not (root / "pivot_set.json").exists()


@needs_mustard
def test_real_clips_give_strata_like_the_science_notes() -> None:
    clips = json.loads((MUSTARD / "sarcasm_data.json").read_text())
    records = records_from_npz(MUSTARD / "tracks_210.npz")["clips"]
    scenarios = {i: {**c, "prosody": records.get(i)} for i, c in clips.items()}
    content = pivot_set(scenarios, PivotConfig(n_repeats=1))
    counts, accuracy = content["counts"], content["text_accuracy"]
    assert counts["clips"] == 690
    assert counts["inadmissible"]["no prosody"] == 480
    assert 200 <= counts["admissible"] <= 210
    assert 15 <= sum(counts["misleading"].values()) <= 40
    assert 55 <= sum(counts["ambiguous"].values()) <= 100
    assert 0.62 <= accuracy["all"] <= 0.71
    assert accuracy["text_easy"] > 0.85
    # Calibrated: t is close to the share of sarcastic clips.
    t = np.array([s["text_score"] for s in content["text_scores"].values()])
    y = np.array([scenarios[i]["sarcasm"] for i in content["text_scores"]])
    for low, high in ((0, 0.35), (0.35, 0.65), (0.65, 1)):
        inside = (t >= low) & (t < high)
        assert abs(t[inside].mean() - y[inside].mean()) < 0.08
