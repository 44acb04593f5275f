"""Two judged runs side by side: on the clips that both judged, which neither was trained on."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.corpus import write_corpus
from support.planted import Answerer, answer, malformed, write_answers
from typer.testing import CliRunner

from subtext import strict_json
from subtext.cli.main import app
from subtext.errors import DataError, EvaluationError
from subtext.evaluation.compare_runs import compare_runs
from subtext.evaluation.statistics import holm, smallest_gain
from subtext.prepare import prepare_run
from subtext.run_dir import RunDir

CHECKOUT = Path(__file__).resolve().parents[2]


def knows(share: float, seed: str = "") -> Answerer:
    """A policy that is right about `share` of the clips, whatever they say."""

    def said(clip_id: str, clip: Mapping[str, Any]) -> str:
        chance = random.Random(f"{seed}{clip_id}").random()
        return answer(clip["sarcasm"] == (chance < share), f"{clip_id}: so.")

    return said


def run_on(
    home: Path, name: str, passes: Mapping[str, Answerer], split_seed: int = 0, n_clips: int = 160
) -> RunDir:
    """A judged run on the corpus in `home`, half of it held out."""
    root = home / "corpus"
    if not root.exists():
        write_corpus(root, n_clips=n_clips)
    overrides = {
        "data": {
            "root": str(root), "split": "random", "eval_ratio": 0.5, "split_seed": split_seed,
        },
        "training": {"runs_dir": str(home / "runs"), "run_id": name},
        "evaluation": {"n_eval_clips": 0},
    }  # fmt: skip
    run = prepare_run("demo", overrides, default_run_id=name)
    write_answers(run, passes)
    return run


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    home = tmp_path_factory.mktemp("compared")
    return run_on(home, "good", {"base": malformed, "warm": knows(0.6), "trained": knows(0.95)})


@pytest.fixture(scope="module")
def poor(good: RunDir) -> RunDir:
    """On the same split, without a warm start."""
    home = good.path.parents[1]
    return run_on(home, "poor", {"base": malformed, "trained": knows(0.5, "x")})


@pytest.fixture(scope="module")
def elsewhere(good: RunDir) -> RunDir:
    """On another split of the same clips."""
    home = good.path.parents[1]
    passes = {"base": malformed, "trained": knows(0.5, "x")}
    return run_on(home, "elsewhere", passes, split_seed=1)


def records_of(run: RunDir, name: str) -> dict[str, bool]:
    results = run.require(run.held_out_eval)["passes"][name]["results"]
    return {record["clip_id"]: record["correct"] for record in results}


def test_runs_are_compared_pass_by_pass_on_the_same_clips(good: RunDir, poor: RunDir) -> None:
    compared = compare_runs(good, poor)
    assert compared["runs"] == ["good", "poor"]
    assert (compared["n_shared"], compared["n_left_out"]) == (80, 0)
    assert compared["smallest_gain"] == smallest_gain(80)
    assert [row["name"] for row in compared["rows"]] == ["base", "trained"], "both runs have them"
    base, trained = compared["rows"]
    ours, theirs = records_of(good, "trained"), records_of(poor, "trained")
    assert trained["n"] == 80
    assert trained["accuracy"] == sum(ours.values()) / 80
    assert trained["accuracy_against"] == sum(theirs.values()) / 80
    assert trained["n_only_ours"] == sum(ours[clip] and not theirs[clip] for clip in ours)
    assert trained["n_only_theirs"] == sum(theirs[clip] and not ours[clip] for clip in ours)
    assert trained["verdict"] == "better"
    assert (base["difference"], base["verdict"]) == (0, "not distinguishable")
    p_values = [row["p_value"] for row in compared["rows"]]
    assert [row["p_holm"] for row in compared["rows"]] == holm(p_values)


def test_the_other_way_round_the_sign_turns(good: RunDir, poor: RunDir) -> None:
    there, back = (compare_runs(*pair)["rows"][-1] for pair in ((good, poor), (poor, good)))
    assert back["difference"] == -there["difference"]
    assert back["interval"] == pytest.approx([-bound for bound in reversed(there["interval"])])
    assert (there["verdict"], back["verdict"]) == ("better", "worse")
    assert back["p_value"] == there["p_value"]


def test_a_run_is_not_distinguishable_from_itself(good: RunDir) -> None:
    rows = compare_runs(good, good)["rows"]
    assert [row["name"] for row in rows] == ["base", "warm", "trained"]
    assert {row["verdict"] for row in rows} == {"not distinguishable"}
    assert {row["difference"] for row in rows} == {0}


def test_clips_that_one_run_was_trained_on_are_left_out(good: RunDir, elsewhere: RunDir) -> None:
    compared = compare_runs(good, elsewhere)
    splits = [run.require(run.split) for run in (good, elsewhere)]
    judged, train = ([set(split[key]) for split in splits] for key in ("judged", "train"))
    fair = judged[0] & judged[1]
    assert 0 < len(fair) < 80
    assert not fair & (train[0] | train[1])
    unfair = (judged[0] & train[1]) | (judged[1] & train[0])
    assert (compared["n_shared"], compared["n_left_out"]) == (len(fair), len(unfair))
    trained = compared["rows"][-1]
    ours = records_of(good, "trained")
    assert trained["n"] == len(fair)
    assert trained["accuracy"] == sum(ours[clip_id] for clip_id in fair) / len(fair)


def test_what_one_run_did_not_judge_is_left_out(good: RunDir, poor: RunDir, tmp_path: Path) -> None:
    """As where a model judges other clips than it was trained on, and the split names more."""
    part = copy_of(poor, tmp_path)
    keep_records(part, slice(0, 30))
    compared = compare_runs(good, part)
    assert (compared["n_shared"], compared["n_left_out"]) == (30, 50)
    assert {row["n"] for row in compared["rows"]} == {30}


def test_runs_that_share_no_judged_clip_are_refused(
    good: RunDir, poor: RunDir, tmp_path: Path
) -> None:
    one, other = copy_of(good, tmp_path), copy_of(poor, tmp_path)
    keep_records(one, slice(0, 40))
    keep_records(other, slice(40, None))
    with pytest.raises(EvaluationError, match="share no judged clip") as caught:
        compare_runs(one, other)
    assert "data.split" in str(caught.value)


def test_runs_on_other_data_are_refused(good: RunDir, tmp_path: Path) -> None:
    other = run_on(tmp_path, "other", {"base": malformed, "trained": malformed}, n_clips=40)
    with pytest.raises(EvaluationError, match="judged different data") as caught:
        compare_runs(good, other)
    assert "data_digest" in str(caught.value)
    assert "'good', 'other'" in str(caught.value)


def test_a_run_that_was_not_judged_is_refused(good: RunDir, tmp_path: Path) -> None:
    other = copy_of(good, tmp_path)
    other.held_out_eval.unlink()
    for pair in ((good, other), (other, good)):
        with pytest.raises(DataError, match=r"held_out_eval\.json"):
            compare_runs(*pair)


def copy_of(run: RunDir, folder: Path) -> RunDir:
    copy = RunDir(folder / run.run_id).create()
    for path in run.path.glob("*.json"):
        (copy.path / path.name).write_bytes(path.read_bytes())
    return copy


def keep_records(run: RunDir, kept: slice) -> None:
    """Leave only these records of every pass."""
    content = run.require(run.held_out_eval)
    for figures in content["passes"].values():
        figures["results"] = figures["results"][kept]
    strict_json.write(run.held_out_eval, content)


# The command line


def test_the_command_prints_a_table_in_words(good: RunDir, poor: RunDir) -> None:
    result = CliRunner().invoke(
        app, ["compare", str(good.path), str(poor.path)], env={"COLUMNS": "80"}
    )
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[:2] == ["first:  good", "second: poor"]
    assert "…" not in result.output
    (row,) = [line for line in lines if line.startswith("│ trained ")]
    trained = compare_runs(good, poor)["rows"][-1]
    for figure in ("accuracy", "accuracy_against"):
        assert f"{trained[figure]:.3f}" in row
    assert "better" in row
    flat = " ".join(result.output.split())
    assert "80 clips judged by both. On so few, a true difference under" in flat
    assert "left out" not in flat


def test_the_command_says_how_many_clips_were_left_out(good: RunDir, elsewhere: RunDir) -> None:
    result = CliRunner().invoke(app, ["compare", str(good.path), str(elsewhere.path)])
    flat = " ".join(result.output.split())
    compared = compare_runs(good, elsewhere)
    assert f"{compared['rows'][-1]['n']} clips judged by both" in flat
    assert f"{compared['n_left_out']} more, which only one of them judged, are left out" in flat


@pytest.mark.parametrize(
    ("other", "said"),
    [("no-such-run", "ls runs"), ("unjudged", "held_out_eval.json")],
    ids=["no run", "not judged"],
)
def test_a_refusal_is_a_message_not_a_traceback(
    good: RunDir, tmp_path: Path, other: str, said: str
) -> None:
    unjudged = RunDir(copy_of(good, tmp_path).path.rename(tmp_path / "unjudged"))
    unjudged.held_out_eval.unlink()
    result = subprocess.run(
        [sys.executable, "-m", "subtext.cli", "compare", str(good.path), str(tmp_path / other)],
        cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert "Usage" not in result.stderr
