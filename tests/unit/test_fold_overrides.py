"""The configuration of one official fold: what the protocol sets, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from subtext.errors import ConfigError
from subtext.evaluation.official_folds import fold_overrides
from subtext.profiles import resolve


def test_overrides_of_a_fold_leave_the_rest_and_the_original_alone() -> None:
    given = {"grpo": {"max_steps": 3}, "data": {"root": "x"}, "training": {"run_id": "mine"}}
    before = json.dumps(given)
    assert fold_overrides(given, 2) == {
        "grpo": {"max_steps": 3},
        "data": {"root": "x", "split": "official", "fold": 2},
        "evaluation": {"n_eval_clips": 0},
        "training": {"run_id": "mine-fold-2"},
    }
    assert json.dumps(given) == before


@pytest.mark.parametrize("profile", ["demo", "cpu", "t4", "gpu"])
def test_every_profile_holds_out_a_fold(profile: str) -> None:
    config = resolve(profile, fold_overrides({}, 4))
    assert (config.data.split, config.data.fold) == ("official", 4)
    assert config.evaluation.n_eval_clips == 0


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [
        ("data", "split", "scene"),
        ("data", "split", "official"),
        ("data", "fold", 0),
        ("evaluation", "n_eval_clips", 0),
        ("evaluation", "n_eval_clips", 80),
    ],
)
def test_what_the_protocol_sets_can_not_be_set(section: str, field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        fold_overrides({section: {field: value}, "grpo": {"max_steps": 3}}, 0)
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == (f"{section}.{field}", value)
    assert "protocol" in problem.problem


def test_all_that_the_protocol_sets_is_named_at_once() -> None:
    overrides = {"data": {"split": "scene", "fold": 1}, "evaluation": {"n_eval_clips": 3}}
    with pytest.raises(ConfigError) as caught:
        fold_overrides(overrides, 0)
    assert len(caught.value.problems) == 3
