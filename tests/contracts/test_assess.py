"""The evaluation of whole runs: what is praised, and what must not be."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.planted import Answerer, answer, malformed, planted_run, write_answers

from subtext import strict_json
from subtext.config import GateConfig
from subtext.errors import DataError
from subtext.evaluation.assess import assess
from subtext.evaluation.gate import decide
from subtext.prosody.render import render_prosody_features

REASONS = ("The words praise what went wrong.", "Said plainly.", "The context says otherwise.")


def knows(share: float) -> Answerer:
    """A policy that is right about `share` of the clips, whatever they say."""

    def said(clip_id: str, clip: Mapping[str, Any]) -> str:
        rng = random.Random(clip_id)
        right = rng.random() < share
        words = f"{rng.choice(REASONS)} Clip of {len(clip['utterance'])} letters, {clip_id}."
        return answer(clip["sarcasm"] == right, words, round(rng.uniform(0.55, 0.95), 2))

    return said


def constant(clip_id: str, clip: Mapping[str, Any]) -> str:
    return answer(True, f"It is plain from {clip['utterance']!r}.", 0.9)


def copies(clip_id: str, clip: Mapping[str, Any]) -> str:
    return answer(clip["sarcasm"], render_prosody_features(clip_id, clip["prosody"]))


def by_speaker(clip_id: str, clip: Mapping[str, Any]) -> str:
    return answer(clip["speaker"] == "MIRELA", f"{clip_id}: I know that voice.")


def tell_by_speaker(clip: dict[str, Any]) -> None:
    clip["speaker"] = "MIRELA" if clip["sarcasm"] else "TOBIN"


def names(evaluation: dict[str, Any]) -> set[str]:
    return {item["name"] for item in (*evaluation["warnings"], *evaluation["alarms"])}


def verdicts(evaluation: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["verdict"] for row in evaluation["comparisons"]}


def test_a_policy_that_knows_is_praised(tmp_path: Path) -> None:
    run = planted_run(tmp_path, {"base": malformed, "trained": knows(0.9)})
    evaluation = assess(run)
    assert set(verdicts(evaluation).values()) == {"better"}
    assert not names(evaluation)
    assert "better than the base" in evaluation["verdict"]
    assert "against it" not in evaluation["verdict"]
    assert decide(evaluation, GateConfig())["decision"] == "promote"


@pytest.mark.parametrize(
    ("policy", "change", "warning"),
    [
        pytest.param(constant, lambda clip: None, "constant_answers", id="constant"),
        pytest.param(copies, lambda clip: None, "copied_prosody", id="copies-the-prosody"),
        pytest.param(by_speaker, tell_by_speaker, "leak", id="knows-the-speaker"),
    ],
)
def test_a_planted_policy_is_exposed(
    tmp_path: Path, policy: Answerer, change: Any, warning: str
) -> None:
    run = planted_run(tmp_path, {"base": malformed, "trained": policy}, change=change)
    evaluation = assess(run)
    assert warning in names(evaluation)
    assert "stand against it" in evaluation["verdict"] or "stands against" in evaluation["verdict"]
    page = run.report.read_text("utf-8")
    message = next(i["message"] for i in evaluation["warnings"] if i["name"] == warning)
    assert message.split(":")[0].split("'")[0][:40] in page
    assert decide(evaluation, GateConfig())["decision"] == "stay"


def test_knowing_the_speaker_is_no_better_than_the_table_of_speakers(tmp_path: Path) -> None:
    run = planted_run(tmp_path, {"base": malformed, "trained": by_speaker}, change=tell_by_speaker)
    evaluation = assess(run)
    assert evaluation["passes"]["trained"]["accuracy"] == 1.0
    assert verdicts(evaluation)["speaker"] == "not distinguishable"
    assert "not distinguishable from" in evaluation["verdict"]


def test_chance_is_not_distinguishable(tmp_path: Path) -> None:
    run = planted_run(tmp_path, {"base": knows(0.5), "trained": knows(0.5)})
    found = verdicts(assess(run))
    assert found["base"] == "not distinguishable"
    assert "better" not in found.values()


def test_files_are_strict_and_the_same_again(tmp_path: Path) -> None:
    run = planted_run(tmp_path, {"base": malformed, "warm": knows(0.6), "trained": knows(0.7)})
    evaluation = assess(run)
    written = {path: path.read_bytes() for path in (run.metrics, run.report, *run.plots.iterdir())}
    assert strict_json.read(run.metrics) == strict_json.loads(strict_json.dumps(evaluation))
    assert run.read(run.metrics) == strict_json.read(run.metrics), "fits its own shape"
    assess(run)
    assert {path: path.read_bytes() for path in written} == written
    assert all(text not in written[run.metrics] for text in (b"NaN", b"Infinity"))


def test_ablation_without_effect_is_told_from_one_with(tmp_path: Path) -> None:
    passes = {
        "base": malformed,
        "trained": knows(0.9),
        "no_prosody": knows(0.5),
        "masked_speaker": knows(0.9),
    }
    run = planted_run(tmp_path, passes, ablations=["no_prosody", "masked_speaker"])
    ablations = assess(run)["ablations"]
    assert ablations["no_prosody"]["verdict"] == "better"
    assert ablations["masked_speaker"]["difference"] == 0
    assert ablations["masked_speaker"]["n_prompts_changed"] == 0, "names are masked anyway"
    assert 0 < ablations["no_prosody"]["n_prompts_changed"] <= ablations["no_prosody"]["n"]


def test_training_figures_come_from_the_log(tmp_path: Path) -> None:
    run = planted_run(tmp_path, {"base": malformed, "trained": knows(0.9)})
    log = [{"step": step, "reward": 0.5, "frac_reward_zero_std": 1.0} for step in range(1, 9)]
    strict_json.write(run.log_history, log)
    evaluation = assess(run)
    assert evaluation["training"] == log[-1]
    assert "no_learning_signal" in names(evaluation)


def test_an_unjudged_run_is_refused(tmp_path: Path) -> None:
    run = planted_run(tmp_path, {"base": malformed, "trained": malformed})
    run.held_out_eval.unlink()
    with pytest.raises(DataError, match=r"held_out_eval\.json"):
        assess(run)


def test_records_of_a_clip_that_is_not_there_are_refused(tmp_path: Path) -> None:
    run = planted_run(tmp_path, {"base": malformed, "trained": malformed}, n_clips=40)
    whole = strict_json.read(run.held_out_eval)
    whole["passes"]["base"]["results"][0]["clip_id"] = "9_9"
    strict_json.write(run.held_out_eval, whole)
    with pytest.raises(DataError, match=r"passes\.base.*9_9"):
        assess(run)


def test_nothing_but_malformed_answers(tmp_path: Path) -> None:
    run = planted_run(tmp_path, {"base": malformed, "trained": malformed}, n_clips=40)
    evaluation = assess(run)
    assert evaluation["passes"]["trained"]["accuracy"] == 0
    assert "NaN" not in run.report.read_text("utf-8")


def test_champion_on_fewer_clips(tmp_path: Path) -> None:
    run = planted_run(tmp_path, {"base": malformed, "trained": knows(0.9)})
    records = strict_json.read(run.held_out_eval)["passes"]["base"]["results"][:30]
    run.judgements.mkdir()
    lines = [json.dumps(record) + "\n" for record in records]
    (run.judgements / "champion.jsonl").write_text("".join(lines))
    strict_json.write(
        run.champion,
        {"version": 1, "uri": "models:/subtext/1", "n_shared": 30, "n_trained_on": 50,
         "reason": None},
    )  # fmt: skip
    evaluation = assess(run)
    row = next(row for row in evaluation["comparisons"] if row["name"] == "champion")
    assert row["n"] == evaluation["passes"]["champion"]["n_eval_clips"] == 30


def test_judged_again_by_other_policies(tmp_path: Path) -> None:
    run = planted_run(tmp_path, {"base": malformed, "trained": knows(0.9)})
    first = assess(run)
    write_answers(run, {"base": malformed, "trained": knows(0.5)})
    assert assess(run)["passes"]["trained"]["accuracy"] < first["passes"]["trained"]["accuracy"]


def test_an_alarm_that_passed_is_kept_apart(tmp_path: Path) -> None:
    run = planted_run(tmp_path, {"base": constant, "trained": knows(0.9)})
    seen = [{"name": "looping_answers", "message": "Answers repeated themselves.", "step": 4}]
    strict_json.write(run.alarms, seen)
    evaluation = assess(run)
    assert evaluation["passed_alarms"] == seen
    assert "looping_answers" not in names(evaluation)
