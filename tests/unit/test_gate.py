"""The gate: what promotes, what does not, and how often luck alone does."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subtext.config import GateConfig
from subtext.evaluation.gate import MIN_SHARED_CLIPS, decide
from subtext.evaluation.statistics import compare, judged_family

BASELINES = ("train majority", "speaker")
GATE = GateConfig(margin=0.05, baselines=BASELINES, min_well_formed=0.9)
ROW = {
    "n": 100, "accuracy": 0.8, "accuracy_against": 0.6, "difference": 0.2, "interval": [0.1, 0.3],
    "n_only_ours": 25, "n_only_theirs": 5, "p_value": 0.0003, "p_holm": 0.001,
    "verdict": "better",
}  # fmt: skip
TIE = {"difference": 0.0, "interval": [-0.1, 0.1], "p_holm": 1.0, "verdict": "not distinguishable"}
CHAMPION = {
    "version": 3, "uri": "models:/subtext/3", "n_shared": 60, "n_trained_on": 40, "reason": None,
}  # fmt: skip


def evaluation(**changes: Any) -> dict[str, Any]:
    """An evaluation without fault: better than base and baselines, and no champion yet."""
    names = {"base": "policy", **dict.fromkeys(BASELINES, "baseline")}
    return {
        "comparisons": [{"name": name, "kind": kind, **ROW} for name, kind in names.items()],
        "passes": {"trained": {"strict_rate": 0.97, "n_eval_clips": 100}},
        "alarms": [],
        "warnings": [],
        "champion": None,
    } | changes


def against(name: str, **changes: Any) -> dict[str, Any]:
    """The same, with another comparison with `name`."""
    content = evaluation()
    for row in content["comparisons"]:
        if row["name"] == name:
            row.update(changes)
    return content


def beside_champion(champion: Mapping[str, Any] = CHAMPION, **row: Any) -> dict[str, Any]:
    content = evaluation(champion=dict(champion))
    content["comparisons"].append({"name": "champion", "kind": "policy", **ROW, "n": 60, **row})
    return content


def failed(content: dict[str, Any], gate: GateConfig = GATE) -> list[str]:
    """The rules that fail; the decision is checked to follow from them."""
    decided = decide(content, gate)
    rules = [reason["rule"] for reason in decided["reasons"] if not reason["passed"]]
    assert decided["decision"] == ("stay" if rules else "promote")
    assert all(reason["text"].strip() for reason in decided["reasons"])
    return rules


def without(content: dict[str, Any], name: str) -> dict[str, Any]:
    kept = [row for row in content["comparisons"] if row["name"] != name]
    return content | {"comparisons": kept}


@pytest.mark.parametrize(
    ("content", "rules"),
    [
        pytest.param(evaluation(), [], id="nothing-against-it"),
        pytest.param(against("base", **TIE), ["beats_base"], id="tie-with-base"),
        pytest.param(
            against("base", difference=0.049, interval=[0.01, 0.09]), ["beats_base"],
            id="below-margin",
        ),
        pytest.param(against("base", difference=0.05), [], id="the-margin-itself"),
        pytest.param(
            against("base", p_holm=0.06, verdict="not distinguishable"), ["beats_base"],
            id="p-above-level",
        ),
        pytest.param(against("base", p_holm=0.05), ["beats_base"], id="p-at-level"),
        pytest.param(against("base", interval=[0.0, 0.3]), ["beats_base"], id="interval-at-zero"),
        pytest.param(
            against("base", difference=-0.2, interval=[-0.3, -0.1], verdict="worse"),
            ["beats_base"], id="worse",
        ),
        pytest.param(against("base", verdict="worse"), ["beats_base"], id="verdict-alone"),
        pytest.param(without(evaluation(), "base"), ["beats_base"], id="no-comparison-with-base"),
        pytest.param(against("base", p_holm=None), ["beats_base"], id="p-missing"),
        pytest.param(against("base", difference=math.nan), ["beats_base"], id="difference-nan"),
        pytest.param(against("base", interval=None), ["beats_base"], id="no-interval"),
        pytest.param(
            against("base", interval=[0.1, math.inf]), ["beats_base"], id="interval-infinite"
        ),
        pytest.param(against("speaker", **TIE), ["beats_baselines"], id="tie-with-a-baseline"),
        pytest.param(
            against("speaker", difference=0.01, interval=[0.001, 0.02]), [],
            id="baselines-have-no-margin",
        ),
        pytest.param(
            without(evaluation(), "speaker"), ["beats_baselines"], id="baseline-not-compared"
        ),
        pytest.param(
            evaluation(passes={"trained": {"strict_rate": 0.89, "n_eval_clips": 100}}),
            ["well_formed"], id="malformed",
        ),
        pytest.param(
            evaluation(passes={"trained": {"strict_rate": 0.9, "n_eval_clips": 100}}), [],
            id="just-well-formed",
        ),
        pytest.param(
            evaluation(passes={"trained": {"strict_rate": None, "n_eval_clips": 100}}),
            ["well_formed"], id="rate-missing",
        ),
        pytest.param(evaluation(passes={}), ["well_formed"], id="pass-missing"),
        pytest.param(
            evaluation(alarms=[{"name": "clipped_completions", "message": "30 % are cut."}]),
            ["no_alarm"], id="alarm",
        ),
        pytest.param(
            evaluation(warnings=[{"name": "constant_answers", "message": "All the same."}]),
            ["no_warning"], id="constant-answers",
        ),
        pytest.param(
            evaluation(warnings=[{"name": "leak", "message": "9 pairs."}]), [], id="leak-alone"
        ),
        pytest.param(
            {}, ["beats_base", "beats_baselines", "well_formed", "no_alarm", "no_warning"],
            id="empty",
        ),
        pytest.param(beside_champion(), [], id="beats-the-champion"),
        pytest.param(beside_champion(**TIE), ["beats_champion"], id="tie-with-the-champion"),
        pytest.param(
            beside_champion(difference=0.03, interval=[0.01, 0.05]), ["beats_champion"],
            id="champion-by-less-than-the-margin",
        ),
        pytest.param(
            beside_champion({**CHAMPION, "n_shared": MIN_SHARED_CLIPS}, n=MIN_SHARED_CLIPS), [],
            id="just-enough-shared-clips",
        ),
        pytest.param(
            beside_champion({**CHAMPION, "n_shared": MIN_SHARED_CLIPS - 1}, n=19),
            ["beats_champion"], id="too-few-shared-clips",
        ),
        pytest.param(
            evaluation(champion={**CHAMPION, "n_shared": 0, "reason": "no base here"}),
            ["beats_champion"], id="champion-not-compared",
        ),
    ],
)  # fmt: skip
def test_rules(content: dict[str, Any], rules: list[str]) -> None:
    assert failed(copy.deepcopy(content)) == rules


def test_reasons_are_sentences_with_figures() -> None:
    reasons = {item["rule"]: item["text"] for item in decide(beside_champion(), GATE)["reasons"]}
    assert reasons["beats_base"] == (
        "Better than the base by the margin of 0.05 or more: accuracy 0.800 against 0.600 on 100 "
        "clips, difference +0.200, 95 % +0.100 to +0.300, Holm's p 0.001."
    )
    assert "the champion, version 3" in reasons["beats_champion"]
    assert "speaker (+0.200, 95 % +0.100 to +0.300" in reasons["beats_baselines"]
    assert reasons["well_formed"].startswith("97.0 % of 100 answers")


def test_a_champion_that_was_not_compared_says_why() -> None:
    few = {**CHAMPION, "n_shared": 7}
    for champion, said in ((few, "only 7 judged clips"), ({**few, "reason": "no base"}, "no base")):
        reasons = decide(evaluation(champion=champion), GATE)["reasons"]
        [text] = [item["text"] for item in reasons if item["rule"] == "beats_champion"]
        assert "Not comparable with the champion, version 3" in text
        assert said in text


def test_without_baselines_none_is_to_be_beaten() -> None:
    gate = GateConfig(baselines=())
    assert failed(without(without(evaluation(), "speaker"), "train majority"), gate) == []


_FIGURE = st.none() | st.floats() | st.integers(-2, 2)


@given(
    difference=_FIGURE,
    p_holm=_FIGURE,
    bounds=st.none() | st.tuples(_FIGURE, _FIGURE).map(list),
    verdict=st.sampled_from(["better", "worse", "not distinguishable"]),
    rate=_FIGURE,
)
def test_only_whole_figures_above_their_bounds_promote(
    difference: Any, p_holm: Any, bounds: Any, verdict: str, rate: Any
) -> None:
    content = against(
        "base", difference=difference, p_holm=p_holm, interval=bounds, verdict=verdict
    )
    content["passes"] = {"trained": {"strict_rate": rate, "n_eval_clips": 100}}
    if decide(content, GATE)["decision"] == "promote":
        assert all(map(math.isfinite, (difference, p_holm, rate, *bounds)))
        assert verdict == "better"
        assert difference >= GATE.margin
        assert bounds[0] > 0
        assert p_holm < 0.05
        assert rate >= GATE.min_well_formed


def simulated(
    rng: np.random.Generator, n: int, truth: dict[str, float], per_scene: int = 2
) -> dict[str, Any]:
    """An evaluation of policies with the accuracies `truth`, in scenes of `per_scene` clips.

    A clip is as hard for one policy as for another: they share most of what they get right.
    """
    ease = rng.random(n)
    right = {
        name: {
            str(i): bool((ease[i] if rng.random() < 0.6 else rng.random()) < accuracy)
            for i in range(n)
        }
        for name, accuracy in truth.items()
    }
    scenes = {str(i): str(i // per_scene) for i in range(n)}
    ours = right.pop("trained")
    rows = [
        {"name": name, "kind": "policy", **compare(ours, theirs, scenes)}
        for name, theirs in right.items()
    ]
    champion = {**CHAMPION, "n_shared": n} if "champion" in truth else None
    return evaluation(comparisons=judged_family(rows), champion=champion)


def promoted_share(n: int, n_runs: int, seed: int, **truth: float) -> float:
    rng = np.random.default_rng(seed)
    gate = GateConfig(margin=0, baselines=())
    decisions = [decide(simulated(rng, n, truth), gate)["decision"] for _ in range(n_runs)]
    return decisions.count("promote") / n_runs


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize(
    ("n", "truth"),
    [
        pytest.param(71, {"trained": 0.6, "base": 0.6}, id="without-champion"),
        pytest.param(200, {"trained": 0.7, "base": 0.7, "champion": 0.7}, id="with-champion"),
        pytest.param(
            200, {"trained": 0.75, "base": 0.5, "champion": 0.75}, id="champion-just-as-good"
        ),
        pytest.param(
            200, {"trained": 0.5, "base": 0.5, "champion": 0.2}, id="champion-worse-than-base"
        ),
    ],
)
def test_a_policy_that_is_no_better_is_promoted_in_fewer_than_one_run_of_twenty(
    n: int, truth: dict[str, float]
) -> None:
    # Without margin. A share of 5 % would show as 0.05 ± 0.025 in 300 runs.
    assert promoted_share(n, 300, seed=n, **truth) <= 0.05


@pytest.mark.slow
@pytest.mark.usefixtures("no_garbage_collection")
def test_a_gain_of_25_points_on_200_clips_mostly_promotes() -> None:
    assert promoted_share(200, 60, seed=1, trained=0.75, base=0.5) >= 0.9
    assert promoted_share(200, 60, seed=2, trained=0.85, base=0.4, champion=0.6) >= 0.9


def test_one_better_policy_is_promoted_and_the_same_one_is_not() -> None:
    rng = np.random.default_rng(0)
    gate = GateConfig(baselines=())
    assert decide(simulated(rng, 200, {"trained": 0.9, "base": 0.5}), gate)["decision"] == "promote"
    assert decide(simulated(rng, 200, {"trained": 0.9, "base": 0.9}), gate)["decision"] == "stay"
