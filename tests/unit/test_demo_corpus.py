"""The committed demo corpus: made by its generator, balanced, and silent about its labels
everywhere except in the delivery."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from subtext.data.scenarios import load_scenarios
from subtext.prosody.schema import SCHEMA, record_problems

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "data" / "demo"
MUSTARD = ROOT.parent / "shared" / "mustard" / "sarcasm_data.json"
LEAK = 0.65
CUES = ("f0_sd_st", "f0_final_slope_st_per_s", "pause_longest_s")

SCENARIOS: dict[str, dict[str, Any]] = json.loads((DEMO / "sarcasm_data.json").read_text())
PROSODY: dict[str, Any] = json.loads((DEMO / "prosody.json").read_text())
CLIPS = list(SCENARIOS.values())
RECORDS = [PROSODY["clips"][clip_id] for clip_id in SCENARIOS]
LABELS = np.array([clip["sarcasm"] for clip in CLIPS])


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_demo", ROOT / "data" / "make_demo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _scene(clip: dict[str, Any]) -> tuple[str, ...]:
    return (clip["show"], clip["speaker"], clip["utterance"], *clip["context"])


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


SCENES = [_scene(clip) for clip in CLIPS]
WORDS = np.array([len(_words(clip["utterance"])) for clip in CLIPS])
GROUPS = np.unique([" | ".join(scene) for scene in SCENES], return_inverse=True)[1]


# --- the files ---------------------------------------------------------------------------------


def test_generator_reproduces_the_committed_bytes(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "data" / "make_demo.py"), "-o", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True)
    for name in ("sarcasm_data.json", "prosody.json"):
        assert (tmp_path / name).read_bytes() == (DEMO / name).read_bytes(), f"rerun for {name}"


def test_a_new_scene_changes_no_other_clip(generator: ModuleType, tmp_path: Path) -> None:
    scene = '\n[[line]]\nsarcasm = true\nshow = "HARBOUR"\nspeaker = "MARA"\n'
    scene += 'context = ["TOBIN: It rained in."]\nutterance = "An indoor pool, at last."\n'
    lines = tmp_path / "lines.toml"
    lines.write_text((DEMO / "lines.toml").read_text(encoding="utf-8") + scene, encoding="utf-8")
    scenarios, prosody = generator.make_corpus(lines)
    assert len(scenarios) == len(SCENARIOS) + 1
    assert SCENARIOS.items() <= scenarios.items()
    assert PROSODY["clips"].items() <= prosody["clips"].items()


def test_loads_as_scenarios_with_prosody_for_every_clip() -> None:
    scenarios = load_scenarios(DEMO)
    assert list(scenarios) == list(SCENARIOS)
    assert [clip["prosody"]["f0_sd_st"] for clip in scenarios.values()] == [
        record["f0_sd_st"] for record in RECORDS
    ]


def test_records_say_that_they_are_not_measured() -> None:
    assert PROSODY["extractor"].startswith("illustrative/")
    assert "not measured" in PROSODY["note"]


def test_records_agree_with_the_schema() -> None:
    assert PROSODY["schema"] == SCHEMA
    assert PROSODY["clips"].keys() == SCENARIOS.keys()
    assert [p for i, record in PROSODY["clips"].items() for p in record_problems(i, record)] == []


# --- the text ----------------------------------------------------------------------------------


def test_classes_balance_in_all_clips_and_in_every_show_and_nearly_in_every_voice() -> None:
    assert len(CLIPS) >= 96
    assert LABELS.sum() * 2 == len(CLIPS)
    for field, slack in (("show", 0), ("speaker", 1)):
        signed = Counter[str]()
        for clip in CLIPS:
            signed[clip[field]] += 1 if clip["sarcasm"] else -1
        assert max(map(abs, signed.values())) <= slack, signed


def test_minimal_pairs_share_every_word_and_differ_in_label() -> None:
    labels: dict[tuple[str, ...], list[bool]] = defaultdict(list)
    for clip, scene in zip(CLIPS, SCENES, strict=True):
        labels[scene].append(clip["sarcasm"])
    pairs = [found for found in labels.values() if len(found) == 2]
    assert len(pairs) >= 40
    assert all(sorted(found) == [False, True] for found in pairs)
    assert all(len(found) <= 2 for found in labels.values())


def test_no_utterance_belongs_to_two_scenes() -> None:
    assert len({" ".join(_words(clip["utterance"])) for clip in CLIPS}) == len(set(SCENES))


def test_every_clip_has_one_to_three_turns_and_no_name_is_spoken() -> None:
    names = {clip["speaker"].lower() for clip in CLIPS}
    for clip in CLIPS:
        assert 1 <= len(clip["context"]) <= 3
        spoken = {word for text in (clip["utterance"], *clip["context"]) for word in _words(text)}
        assert not spoken & names, clip


def test_no_line_is_taken_from_mustard() -> None:
    if not MUSTARD.exists():
        pytest.skip("shared/mustard is not beside this checkout")
    theirs = json.loads(MUSTARD.read_text(encoding="utf-8")).values()
    known = {" ".join(_words(t)) for clip in theirs for t in (clip["utterance"], *clip["context"])}
    ours = {" ".join(_words(t)) for clip in CLIPS for t in (clip["utterance"], *clip["context"])}
    assert not {line for line in ours & known if len(line.split()) >= 4}


# --- what gives the label away -----------------------------------------------------------------


def _folds(n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Ten folds, every tenth clip of the file: (known, judged) as masks."""
    for fold in range(10):
        judged = np.arange(n) % 10 == fold
        yield ~judged, judged


def _prior_accuracy(values: Sequence[object], labels: np.ndarray) -> float:
    """Ten folds: the majority label of the known clips with this value; a tie earns half."""
    keys = np.array([str(value) for value in values])
    correct = np.zeros(keys.size)
    for known, judged in _folds(keys.size):
        for i in np.flatnonzero(judged):
            others = labels[known & (keys == keys[i])]
            lean = others.mean() - 0.5 if others.size else 0.0
            correct[i] = 0.5 if lean == 0 else (lean > 0) == labels[i]
    return float(correct.mean())


def _stump_accuracy(values: ArrayLike, labels: np.ndarray) -> float:
    """Ten folds: the single threshold, and its direction, that do best on the known clips."""
    x = np.asarray(values, dtype=np.float64)
    correct = np.zeros(x.size)
    for known, judged in _folds(x.size):
        points = np.unique(x[known])
        cuts = (points[1:] + points[:-1]) / 2
        above = ((x[known][None, :] > cuts[:, None]) == labels[known]).mean(axis=1)
        best = int(np.argmax(np.abs(above - 0.5)))
        correct[judged] = ((x[judged] > cuts[best]) == labels[judged]) == (above[best] > 0.5)
    return float(correct.mean())


def _neighbour_accuracy(labels: np.ndarray) -> float:
    """The label of the clip before in the file, or its opposite, whichever does better."""
    same = float((labels[1:] == labels[:-1]).mean())
    return max(same, 1 - same)


NUISANCES: dict[str, Callable[[np.ndarray], float]] = {
    "speaker": lambda y: _prior_accuracy([clip["speaker"] for clip in CLIPS], y),
    "show": lambda y: _prior_accuracy([clip["show"] for clip in CLIPS], y),
    "answered speaker": lambda y: _prior_accuracy([c["context_speakers"][-1] for c in CLIPS], y),
    "id prefix": lambda y: _prior_accuracy([clip_id[2] for clip_id in SCENARIOS], y),
    "id order": lambda y: _stump_accuracy(range(len(CLIPS)), y),
    "clip before": _neighbour_accuracy,
    "line length": lambda y: _stump_accuracy(WORDS, y),
    "context turns": lambda y: _stump_accuracy([len(c["context"]) for c in CLIPS], y),
    "context length": lambda y: _stump_accuracy([len(" ".join(c["context"])) for c in CLIPS], y),
    "duration": lambda y: _stump_accuracy([r["duration_s"] for r in RECORDS], y),
    "pitch level": lambda y: _stump_accuracy([r["f0_median_hz"] for r in RECORDS], y),
    "tempo": lambda y: _stump_accuracy(WORDS / [r["duration_s"] for r in RECORDS], y),
    "loudness variation": lambda y: _stump_accuracy([r["intensity_sd_db"] for r in RECORDS], y),
    "voice quality": lambda y: _stump_accuracy([r["hnr_mean_db"] for r in RECORDS], y),
}


@pytest.mark.parametrize("name", NUISANCES)
def test_trivial_baseline_stays_near_chance(name: str) -> None:
    assert NUISANCES[name](LABELS) < LEAK


def test_the_baselines_would_notice_a_leak() -> None:
    speakers = [clip["speaker"] for clip in CLIPS]
    assert _prior_accuracy(speakers, np.array([name < "N" for name in speakers])) == 1.0
    assert _stump_accuracy(WORDS, WORDS < 8) > 0.95
    assert _neighbour_accuracy(np.arange(len(CLIPS)) < 60) > 0.95


def _scene_grouped(model: Any, inputs: Any) -> float:
    folds = GroupKFold(n_splits=5)
    return float(cross_val_score(model, inputs, LABELS, groups=GROUPS, cv=folds).mean())


def test_words_are_nearly_powerless() -> None:
    text = [" ".join((*clip["context"], clip["utterance"])) for clip in CLIPS]
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression())
    assert _scene_grouped(model, text) < LEAK


def test_delivery_tells_but_not_perfectly() -> None:
    cues = [[record[name] for name in CUES] for record in RECORDS]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    assert 0.65 <= _scene_grouped(model, cues) < 0.95


@pytest.mark.parametrize("name", CUES)
def test_no_single_cue_decides(name: str) -> None:
    assert _stump_accuracy([record[name] for record in RECORDS], LABELS) < 0.85


def test_ceiling_is_what_the_data_card_says(generator: ModuleType) -> None:
    ceiling = generator.measure_ceiling(DEMO / "lines.toml", 500)
    assert 0.80 <= ceiling["ideal"] <= 0.89
    assert 0.77 <= ceiling["records"] <= 0.88
    assert ceiling["duration"] < 0.56
