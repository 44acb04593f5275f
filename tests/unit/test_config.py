"""The configuration: every profile is a case, every refusal names field, value and remedy."""

import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.corpus import write_corpus

from subtext.config import Ablation, BaselineName, Overrides, RunConfig
from subtext.data.run_split import divided
from subtext.data.scenarios import load_scenarios
from subtext.errors import ConfigError
from subtext.evaluation.ablations import LABELS
from subtext.evaluation.baselines import COMPARED
from subtext.profiles import Profile, load_profile, parse_assignments, resolve


@pytest.mark.parametrize("profile", list(Profile))
def test_every_profile_resolves_and_lists_only_what_differs(profile):
    defaults = RunConfig().model_dump(mode="json")
    resolve(profile)
    for section, values in load_profile(profile).items():
        for field, value in values.items():
            assert defaults[section][field] != value, f"{section}.{field} repeats the default"


def test_t4_is_the_seeds_numbers():
    config = resolve("t4")
    assert (config.model.name, config.model.quantization) == ("Qwen/Qwen2.5-3B-Instruct", "nf4")
    assert (config.lora.r, config.lora.alpha, config.lora.dropout) == (16, 16, 0.05)
    assert (config.grpo.max_steps, config.grpo.num_generations) == (200, 4)
    assert (config.grpo.max_completion_length, config.grpo.learning_rate) == (768, 5e-6)
    assert (config.data.n_train_rows, config.data.eval_ratio) == (600, 0.2)
    assert (config.training.save_steps, config.training.save_total_limit) == (50, 4)
    assert (config.evaluation.n_eval_clips, config.evaluation.clip_order) == (80, "seed")
    assert (config.prompt.header, config.prompt.speaker, config.prompt.cue_rules) == (
        "seed",
        "named",
        True,
    )
    assert config.warm_start.steps == 0


@pytest.mark.parametrize("profile", ["cpu", "gpu", "demo"])
def test_other_profiles_hide_what_leaks(profile):
    prompt = resolve(profile).prompt
    assert (prompt.header, prompt.speaker, prompt.cue_rules) == ("blind", "masked", False)


REFUSALS = [
    pytest.param({"grpo": {"max_stepz": 3}}, "grpo.max_stepz", "grpo.max_steps", id="misspelt"),
    pytest.param({"grop": {"max_steps": 3}}, "grop", "grpo", id="misspelt section"),
    pytest.param({"grpo": {"zzz": 3}}, "grpo.zzz", "Known here", id="nothing like it"),
    pytest.param({"data": {"eval_ratio": 1.5}}, "data.eval_ratio", "1.5", id="out of range"),
    pytest.param({"data": {"eval_ratio": "x"}}, "data.eval_ratio", "'x'", id="wrong type"),
    pytest.param({"data": {"eval_ratio": float("nan")}}, "data.eval_ratio", "nan", id="NaN"),
    pytest.param({"grpo": 3}, "grpo", "3", id="section is no object"),
    pytest.param({"prompt": {"header": "x"}}, "prompt.header", "blind", id="not a choice"),
    pytest.param({"publish": {"adapter_repo": "a"}}, "publish.adapter_repo", "'a'", id="no repo"),
    pytest.param({"training": {"run_id": "../x"}}, "training.run_id", "../x", id="unsafe name"),
    pytest.param(
        {"grpo": {"num_generations": 3}}, "grpo.num_generations", "multiple of 3", id="batch"
    ),
    pytest.param(
        {"grpo": {"max_completion_length": 4096}}, "model.max_context_tokens", "Raise", id="context"
    ),
    pytest.param({"training": {"seed": -1}}, "training.seed", "-1", id="seed below 0"),
    pytest.param(
        {"data": {"split_seed": 2**32}}, "data.split_seed", "4294967296", id="seed too big"
    ),
    pytest.param({"grpo": {"max_steps": 10**23}}, "grpo.max_steps", "1000000", id="endless"),
    pytest.param(
        {"tracking": {"registered_model": "."}}, "tracking.registered_model", "'.'", id="dot"
    ),
    pytest.param(
        {"lora": {"target_modules": ["lm_head"]}}, "lora.target_modules", "Leave out", id="lm_head"
    ),
    pytest.param({"data": {"split": "scenes"}}, "data.split", "scene", id="no such split"),
    pytest.param({"data": {"fold": 3}}, "data.fold", "data.split to official", id="fold alone"),
    pytest.param(
        {"data": {"split": "official"}}, "data.fold", "Set it to 0, 1, 2, 3 or 4", id="no fold"
    ),
    pytest.param({"data": {"split": "official", "fold": 5}}, "data.fold", "0..4", id="sixth fold"),
    pytest.param(
        {"data": {"split": "official", "fold": True}}, "data.fold", "0..4", id="true as fold"
    ),
    pytest.param(
        {"data": {"test_shows": ["BBT"]}}, "data.test_shows", "data.split to show", id="shows alone"
    ),
    pytest.param(
        {"data": {"split": "show", "test_shows": []}}, "data.test_shows", "[]", id="no show"
    ),
    pytest.param(
        {"data": {"split": "show", "eval_ratio": 0.5}},
        "data.eval_ratio",
        "Leave it at 0.2",
        id="ratio that shows ignore",
    ),
    pytest.param(
        {"data": {"split": "official", "fold": 0, "split_seed": 7}},
        "data.split_seed",
        "Leave it at 42",
        id="seed that folds ignore",
    ),
    pytest.param(
        {"evaluation": {"ablations": ["no_prosidy"]}},
        "evaluation.ablations.0",
        "no_prosody",
        id="no such altered prompt",
    ),
    pytest.param(
        {"evaluation": {"n_eval_clips": -1}}, "evaluation.n_eval_clips", "-1", id="clips below 0"
    ),
    pytest.param(
        {"evaluation": {"n_train_clips": 2.5}}, "evaluation.n_train_clips", "2.5", id="half a clip"
    ),
    pytest.param(
        {"evaluation": {"judge_checkpoints": "often"}},
        "evaluation.judge_checkpoints",
        "often",
        id="no yes or no",
    ),
    pytest.param(
        {"gate": {"baselines": ["speakers"]}},
        "gate.baselines.0",
        "train majority",
        id="no such baseline",
    ),
    pytest.param({"gate": {"margin": 1}}, "gate.margin", "less than 1", id="margin of all"),
    pytest.param({"gate": {"margin": -0.1}}, "gate.margin", "-0.1", id="margin below 0"),
    pytest.param(
        {"gate": {"min_well_formed": 95}}, "gate.min_well_formed", "95", id="share in per cent"
    ),
    pytest.param(
        {"training": {"save_steps": 5}, "grpo": {"num_iterations": 2}},
        "training.save_steps",
        "multiple of 2",
        id="checkpoint between passes",
    ),
]


@pytest.mark.parametrize(("overrides", "field", "hint"), REFUSALS)
def test_refusal_names_field_and_remedy(overrides, field, hint):
    with pytest.raises(ConfigError) as caught:
        resolve("t4", overrides)
    assert field in [problem.field for problem in caught.value.problems]
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ("data", "test_shows"),
        ("lora", "target_modules"),
        ("evaluation", "ablations"),
        ("gate", "baselines"),
    ],
)
def test_a_text_where_a_list_belongs_is_shown_as_one(section, field):
    given = parse_assignments([f"{section}.{field}=HARBOUR"])
    with pytest.raises(ConfigError, match=r'is no list\. Write \["HARBOUR"\]\.') as caught:
        resolve("cpu", given)
    assert "tuple" not in str(caught.value)


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param({"split": "show", "test_shows": ["HARBOUR"]}, id="show"),
        pytest.param({"split": "official", "fold": 0}, id="official"),
    ],
)
def test_what_a_profile_says_of_its_own_split_is_left_out_for_another(chosen):
    assert resolve("demo").data.eval_ratio == 0.33
    data = resolve("demo", {"data": chosen}).data
    assert (data.split, data.eval_ratio) == (chosen["split"], 0.2)
    assert data.root == resolve("demo").data.root
    assert resolve("demo", {"data": {"split": "speaker"}}).data.eval_ratio == 0.33
    with pytest.raises(ConfigError, match="has no effect"):
        resolve("demo", {"data": {**chosen, "eval_ratio": 0.5}})


def test_every_altered_prompt_and_baseline_can_be_asked_for_and_none():
    chosen = {"ablations": list(get_args(Ablation)), "n_eval_clips": 0, "n_train_clips": 0}
    config = resolve("t4", {"evaluation": chosen, "gate": {"baselines": list(COMPARED)}})
    assert config.evaluation.ablations == tuple(LABELS)
    assert config.gate.baselines == get_args(BaselineName)
    config = resolve("t4", {"evaluation": {"ablations": []}, "gate": {"baselines": []}})
    assert (config.evaluation.ablations, config.gate.baselines) == ((), ())


def test_every_profile_looks_at_what_the_voice_adds():
    assert all("no_prosody" in resolve(profile).evaluation.ablations for profile in Profile)


def test_judging_no_number_of_clips_judges_all(tmp_path):
    root = str(write_corpus(tmp_path, n_clips=40))
    scenarios = load_scenarios(root)
    few, all_clips = (
        divided(
            scenarios, resolve("t4", {"data": {"root": root}, "evaluation": {"n_eval_clips": n}})
        )
        for n in (3, 0)
    )
    assert len(few["judged"]) == 3
    assert few["held_out"] == all_clips["held_out"]
    assert sorted(all_clips["judged"]) == sorted(all_clips["held_out"])
    assert all_clips["judged"][:3] == few["judged"]


def test_all_problems_are_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        resolve("t4", {"data": {"eval_ratio": 2}, "grpo": {"max_stepz": 1, "beta": -1}})
    assert len(caught.value.problems) == 3


def test_an_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="demo, cpu, t4, gpu"):
        resolve("t5")


def test_null_in_overrides_keeps_the_profiles_value():
    assert resolve("t4", {"grpo": {"max_steps": None}}) == resolve("t4")
    assert resolve("t4", Overrides()) == resolve("t4")


def test_overrides_have_the_fields_of_the_config_all_optional():
    for section, field in RunConfig.model_fields.items():
        partial = Overrides.model_fields[section].annotation
        assert set(partial.model_fields) == set(field.annotation.model_fields)
        assert all(value is None for value in partial().model_dump().values())


def test_every_field_is_documented():
    for section, field in RunConfig.model_fields.items():
        assert field.annotation.__doc__
        for name, inner in field.annotation.model_fields.items():
            assert inner.description, f"{section}.{name}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-4", 1e-4),
        ("true", True),
        ('["q_proj"]', ["q_proj"]),
        ("me/judge", "me/judge"),
        ("", ""),
        ("a=b", "a=b"),
    ],
)
def test_assignments_are_json_where_they_can_be(text, value):
    assert parse_assignments([f"grpo.max_steps={text}"]) == {"grpo": {"max_steps": value}}


@pytest.mark.parametrize("assignment", ["grpo", "grpo.max_steps", "max_steps=3", ".a=1", "a.=1"])
def test_assignments_of_another_shape_are_refused(assignment):
    with pytest.raises(ConfigError, match=r"section\.field=value"):
        parse_assignments([assignment])


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from([*RunConfig.model_fields, "x"]), inner)
        ),
        max_leaves=8,
    )
)
def test_any_overrides_give_a_config_or_a_config_error(overrides):
    if not isinstance(overrides, dict):
        overrides = {"grpo": overrides}
    try:
        resolve("cpu", overrides)
    except ConfigError as error:
        assert error.problems


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("me/judge", True),
        ("a.b-c_d/X9", True),
        ("", True),
        ("judge", False),
        ("me/jud ge", False),
        ("me/a--b", False),
        ("me/a..b", False),
        ("me/-a", False),
        ("me/a.", False),
        ("me/x.git", False),
        ("a/b/c", False),
        ("me/" + "x" * 96, False),
    ],
)
def test_repository_ids_follow_the_hubs_rule(name, fits):
    if fits:
        assert resolve("cpu", {"publish": {"adapter_repo": name}}).publish.adapter_repo == name
    else:
        with pytest.raises(ConfigError, match="owner/name"):
            resolve("cpu", {"publish": {"adapter_repo": name}})


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        pytest.param({"data": {"n_train_rows": 1}}, "data.n_train_rows", id="rows fill no step"),
        pytest.param({"model": {"name": "Qwen/Qwen3-0.6B"}}, "model.name", id="another's name"),
        pytest.param({"model": {"source": "tiny"}}, "model.name", id="another source"),
    ],
)
def test_what_would_train_nothing_or_lie_is_refused(overrides, field):
    with pytest.raises(ConfigError) as caught:
        resolve("cpu", overrides)
    assert [problem.field for problem in caught.value.problems] == [field]


def test_a_text_field_keeps_its_text():
    assert parse_assignments(["training.run_id=20261201"]) == {"training": {"run_id": "20261201"}}


def _integer_fields():
    for section, info in RunConfig.model_fields.items():
        for name, field in info.annotation.model_fields.items():
            if field.annotation is int:
                yield f"{section}.{name}"


@pytest.mark.parametrize("field", _integer_fields())
@pytest.mark.parametrize("value", ["1" + "0" * 400, "-1" + "0" * 400])
def test_no_integer_is_without_bounds(field, value):
    with pytest.raises(ConfigError, match=re.escape(field)):
        resolve("demo", parse_assignments([f"{field}={value}"]))
