"""MUStARD's protocol on five real runs of a generated corpus, their answers planted."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.corpus import write_corpus
from support.planted import answer, write_answers

from subtext import strict_json
from subtext.data.folds import N_FOLDS
from subtext.data.scenarios import load_run_scenarios
from subtext.errors import DataError, EvaluationError
from subtext.evaluation.assess import assess
from subtext.evaluation.official_folds import PROTOCOL, fold_overrides, pool_folds, write_folds
from subtext.fold_tables import paper_rows, paper_sentence
from subtext.prepare import prepare_run
from subtext.run_dir import RunDir

N_CLIPS = 103  # folds of unequal size: a mean over folds is no count over clips
N_MUSTARD = 690
MEANS = ("accuracy", "precision_weighted", "recall_weighted", "f1_weighted")


def knows(share: float, clip_id: str, clip: Mapping[str, Any]) -> str:
    """An answer that is right about `share` of the clips."""
    return answer(clip["sarcasm"] == (random.Random(clip_id).random() < share), f"{clip_id}: so.")


PASSES = {
    "base": lambda clip_id, clip: answer(True, f"{clip_id}: always."),
    "trained": lambda clip_id, clip: knows(0.8, clip_id, clip),
}


def write_folded_corpus(root: Path, n_clips: int) -> Path:
    """A corpus with `official_folds.json`."""
    write_corpus(root, n_clips=n_clips)
    ids = list(json.loads((root / "sarcasm_data.json").read_text()))
    random.Random(0).shuffle(ids)
    tests = [ids[fold::N_FOLDS] for fold in range(N_FOLDS)]
    folds = [{"train": [i for i in ids if i not in test], "test": test} for test in tests]
    (root / "official_folds.json").write_text(json.dumps(folds))
    return root


def fold_run(home: Path, fold: int, run_id: str = "", **overrides: Any) -> RunDir:
    """A judged run that holds out `fold` of the corpus in `home`."""
    sections = {
        "data": {"root": str(home / "corpus")},
        "training": {"runs_dir": str(home / "runs")},
        **overrides,
    }
    run = prepare_run("demo", fold_overrides(sections, fold), default_run_id=run_id or f"r-{fold}")
    write_answers(run, PASSES)
    return run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folds")
    write_folded_corpus(folder / "corpus", N_CLIPS)
    return folder


@pytest.fixture(scope="module")
def runs(home: Path) -> list[RunDir]:
    return [fold_run(home, fold) for fold in range(N_FOLDS)]


@pytest.fixture(scope="module")
def pooled(runs: list[RunDir]) -> dict[str, Any]:
    return pool_folds(runs)


@pytest.fixture(scope="module")
def judged(runs: list[RunDir]) -> list[dict[str, list[dict[str, Any]]]]:
    """By fold, the records of every pass."""
    return [
        {
            name: figures["results"]
            for name, figures in run.require(run.held_out_eval)["passes"].items()
        }
        for run in runs
    ]


@pytest.fixture
def copies(runs: list[RunDir], tmp_path: Path) -> list[RunDir]:
    """The five runs, to be spoilt."""
    for run in runs:
        copy = RunDir(tmp_path / "runs" / run.run_id).create()
        for path in run.path.glob("*.json"):
            (copy.path / path.name).write_bytes(path.read_bytes())
    return [RunDir(tmp_path / "runs" / run.run_id) for run in runs]


def right(records: list[dict[str, Any]]) -> list[bool]:
    return [record["correct"] for record in records]


# What is pooled


def test_every_clip_is_judged_once_by_the_policy_that_never_saw_it(
    runs: list[RunDir], pooled: dict[str, Any]
) -> None:
    splits = [run.require(run.split) for run in runs]
    assert all(sorted(split["judged"]) == sorted(split["held_out"]) for split in splits)
    ids = [clip_id for split in splits for clip_id in split["judged"]]
    assert len(ids) == len(set(ids)) == pooled["n_clips"] == N_CLIPS
    assert [(fold["fold"], fold["run_id"]) for fold in pooled["folds"]] == [
        (fold, run.run_id) for fold, run in enumerate(runs)
    ]
    assert [fold["n"] for fold in pooled["folds"]] == [21, 21, 21, 20, 20]
    assert pooled["protocol"] == PROTOCOL


@pytest.mark.parametrize("name", ["base", "trained"])
def test_pooled_accuracy_is_a_count_and_the_mean_is_over_folds(
    pooled: dict[str, Any], judged: list[dict[str, Any]], name: str
) -> None:
    by_fold = [right(passes[name]) for passes in judged]
    n_right = sum(map(sum, by_fold))
    assert pooled["pooled"][name]["n_correct"] == n_right
    assert pooled["pooled"][name]["accuracy"] == n_right / N_CLIPS
    accuracies = [sum(found) / len(found) for found in by_fold]
    assert pooled["mean"][name]["accuracy"] == pytest.approx(sum(accuracies) / N_FOLDS)
    assert [fold["policies"][name]["accuracy"] for fold in pooled["folds"]] == accuracies
    assert "results" not in pooled["pooled"][name]


def test_means_are_scikit_learns_weighted_figures_of_each_fold(
    pooled: dict[str, Any], judged: list[dict[str, Any]]
) -> None:
    from sklearn.metrics import precision_recall_fscore_support

    found = [
        precision_recall_fscore_support(
            *([record[key] for record in passes["trained"]] for key in ("gold", "predicted")),
            average="weighted", zero_division=0,
        )[:3]
        for passes in judged
    ]  # fmt: skip
    means = [sum(fold[index] for fold in found) / N_FOLDS for index in range(3)]
    assert [pooled["mean"]["trained"][name] for name in MEANS[1:]] == pytest.approx(means)


def test_baselines_are_fitted_by_fold_on_its_own_training_clips(
    runs: list[RunDir], pooled: dict[str, Any]
) -> None:
    """The speaker prior, by hand: (sarcastic + 1) / (clips + 2) of the fold's training clips."""
    correct, by_fold = 0, []
    for run in runs:
        split, clips = run.require(run.split), load_run_scenarios(run)
        n_clips = Counter(clips[clip_id]["speaker"] for clip_id in split["train"])
        n_sarcastic = Counter(
            clips[clip_id]["speaker"] for clip_id in split["train"] if clips[clip_id]["sarcasm"]
        )
        shares = {name: (n_sarcastic[name] + 1) / (n + 2) for name, n in n_clips.items()}
        found = [
            (shares[clips[clip_id]["speaker"]] > 0.5) == clips[clip_id]["sarcasm"]
            for clip_id in split["judged"]
        ]
        correct += sum(found)
        by_fold.append(sum(found) / len(found))
    rows = {row["name"]: row for row in pooled["comparisons"]}
    assert rows["speaker"]["accuracy_against"] == correct / N_CLIPS
    assert pooled["mean"]["speaker"]["accuracy"] == pytest.approx(sum(by_fold) / N_FOLDS)


def test_baselines_are_those_of_the_five_evaluations(
    runs: list[RunDir], pooled: dict[str, Any]
) -> None:
    tables = [assess(run)["baselines"] for run in runs]
    for name in tables[0]:
        for figure in ("accuracy", "f1_weighted"):
            mean = sum(table[name][figure] for table in tables) / N_FOLDS
            assert pooled["mean"][name][figure] == pytest.approx(mean), name


def test_comparisons_are_on_all_out_of_fold_answers(
    pooled: dict[str, Any], judged: list[dict[str, Any]]
) -> None:
    first, *baselines = pooled["comparisons"]
    assert (first["name"], first["kind"], first["n"]) == ("base", "policy", N_CLIPS)
    assert {row["kind"] for row in baselines} == {"baseline"}
    assert {row["n"] for row in baselines} == {N_CLIPS}
    pairs = [
        pair
        for passes in judged
        for pair in zip(right(passes["trained"]), right(passes["base"]), strict=True)
    ]
    assert first["n_only_ours"] == pairs.count((True, False))
    assert first["n_only_theirs"] == pairs.count((False, True))
    assert first["verdict"] == "better"
    assert first["accuracy"] == pooled["pooled"]["trained"]["accuracy"]


def test_the_same_runs_give_the_same_bytes(runs: list[RunDir], pooled: dict[str, Any]) -> None:
    path = write_folds(runs)
    assert path.parent == runs[0].path.parent
    content = path.read_bytes()
    assert strict_json.loads(content.decode()) == strict_json.loads(strict_json.dumps(pooled))
    path.unlink()
    assert write_folds(runs) == path
    assert path.read_bytes() == content


# The paper's table


def paper_of(copies: list[RunDir], corpus: str) -> dict[str, Any]:
    for run in copies:
        strict_json.write(run.split, {**run.require(run.split), "corpus": corpus})
    return pool_folds(copies)


@pytest.mark.parametrize("corpus", ["", "demo"])
def test_figures_of_another_corpus_do_not_stand_beside_the_papers(
    copies: list[RunDir], corpus: str
) -> None:
    found = paper_of(copies, corpus)
    assert found["paper"] is None
    assert paper_rows(found) == []
    assert "these clips are another corpus" in paper_sentence(found)


def test_nor_do_those_of_a_part_of_mustard(copies: list[RunDir]) -> None:
    found = paper_of(copies, "mustard")
    assert found["paper"] is None
    assert f"judges 690 clips, here {N_CLIPS} were judged" in paper_sentence(found)
    assert "data.require_prosody" in paper_sentence(found)


def test_on_all_of_mustard_the_papers_table_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folded_corpus(tmp_path / "corpus", N_MUSTARD)
    # What says that a corpus is MUStARD is the hash of its file, which is not ours to ship.
    monkeypatch.setattr("subtext.prepare.corpus_name", lambda folder: "mustard")
    found = pool_folds([fold_run(tmp_path, fold) for fold in range(N_FOLDS)])
    assert found["n_clips"] == len(json.loads((root / "sarcasm_data.json").read_text())) == 690
    assert found["paper_left_out"] is None
    assert found["paper"]["n_clips"] == N_MUSTARD
    assert ("SVM text + audio", "66.6", "66.2", "66.2") in paper_rows(found)
    assert "P19-1455" in paper_sentence(found)
    assert "check before quoting" in paper_sentence(found)


# What is refused


def drop_one(runs: list[RunDir]) -> list[RunDir]:
    return runs[:-1]


def double_one(runs: list[RunDir]) -> list[RunDir]:
    return [*runs[:-1], runs[0]]


def none_at_all(runs: list[RunDir]) -> list[RunDir]:
    return []


def other_settings(runs: list[RunDir]) -> list[RunDir]:
    record = strict_json.read(runs[2].config)
    record["config"]["grpo"]["learning_rate"] /= 2
    strict_json.write(runs[2].config, record)
    return runs


def other_clips(runs: list[RunDir]) -> list[RunDir]:
    strict_json.write(runs[3].split, {**runs[3].require(runs[3].split), "data_digest": "e" * 64})
    return runs


def another_split(runs: list[RunDir]) -> list[RunDir]:
    for run in runs:
        record = strict_json.read(run.config)
        record["config"]["data"].update(split="random", fold=-1)
        strict_json.write(run.config, record)
    return runs


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(drop_one, ["[0, 1, 2, 3]", "'r-0', 'r-1', 'r-2', 'r-3'"], id="missing-fold"),
        pytest.param(double_one, ["[0, 0, 1, 2, 3]", "each of 0 to 4 once"], id="doubled-fold"),
        pytest.param(none_at_all, ["[]", "the five runs"], id="no-run"),
        pytest.param(other_settings, ["r-2", "other settings than r-0"], id="other-settings"),
        pytest.param(other_clips, ["data_digest", "clips changed"], id="other-clips"),
        pytest.param(another_split, ["[-1, -1, -1, -1, -1]"], id="no-official-folds"),
    ],
)
def test_runs_that_are_not_one_a_fold_are_named(
    copies: list[RunDir], spoil: Callable[[list[RunDir]], list[RunDir]], words: list[str]
) -> None:
    with pytest.raises(EvaluationError) as caught:
        pool_folds(spoil(copies))
    assert "official folds" in str(caught.value)
    assert [text for text in words if text not in str(caught.value)] == []


def test_a_fold_that_was_not_judged_is_named(copies: list[RunDir]) -> None:
    copies[1].held_out_eval.unlink()
    with pytest.raises(DataError, match=r"r-1: held_out_eval\.json"):
        pool_folds(copies)


def test_a_fold_whose_split_was_changed_by_hand_is_named(copies: list[RunDir]) -> None:
    split = copies[4].require(copies[4].split)
    moved = split["judged"][0]
    halves = {
        "train": [*split["train"], moved],
        "held_out": [clip_id for clip_id in split["held_out"] if clip_id != moved],
        "judged": split["judged"][1:],
    }
    strict_json.write(copies[4].split, {**split, **halves})
    with pytest.raises(DataError, match=r"are not where data\.split=official puts"):
        pool_folds(copies)
