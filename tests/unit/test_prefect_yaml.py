"""prefect.yaml, as `prefect deploy` will read it: no server needed."""

import importlib.util
from pathlib import Path

import pytest
import yaml
from prefect.exceptions import ParameterTypeError

from flows.data_flow import data_flow
from flows.evaluate_flow import evaluate_flow
from flows.hf_job_flow import hf_job_flow
from flows.train_flow import train_flow
from subtext.config import Overrides
from subtext.data.folds import N_FOLDS
from subtext.evaluation.official_folds import fold_overrides
from subtext.profiles import Profile, resolve

ROOT = Path(__file__).resolve().parents[2]
CONTENT = yaml.safe_load((ROOT / "prefect.yaml").read_text("utf-8"))
DEPLOYMENTS = {entry["name"]: entry for entry in CONTENT["deployments"]}
FLOWS = {
    "flows/train_flow.py:train_flow": train_flow,
    "flows/hf_job_flow.py:hf_job_flow": hf_job_flow,
    "flows/evaluate_flow.py:evaluate_flow": evaluate_flow,
    "flows/data_flow.py:data_flow": data_flow,
}


def test_deployments_and_their_parameters():
    deployed = {
        f"{FLOWS[entry['entrypoint']].name}/{name}": entry["parameters"]
        for name, entry in DEPLOYMENTS.items()
    }
    assert deployed == {
        "subtext/train": {"profile": "t4"},
        "subtext/train-cpu": {"profile": "cpu"},
        "subtext/train-demo": {"profile": "demo"},
        "subtext/train-hf-job": {"profile": "t4"},
        "subtext-evaluate/model": {
            "protocol": "model", "model": "models:/subtext@challenger", "profile": "cpu",
        },
        "subtext-evaluate/official-folds": {"protocol": "official-folds", "profile": "cpu"},
        "subtext-data/mustard": {"source": "mustard"},
    }  # fmt: skip


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_parameters_fit_the_flow(name):
    entry = DEPLOYMENTS[name]
    FLOWS[entry["entrypoint"]].validate_parameters(entry["parameters"])


@pytest.mark.parametrize(
    "name", [name for name, entry in DEPLOYMENTS.items() if "profile" in entry["parameters"]]
)
def test_profiles_resolve(name):
    entry = DEPLOYMENTS[name]
    parameters = FLOWS[entry["entrypoint"]].validate_parameters(entry["parameters"])
    assert isinstance(parameters["profile"], Profile)
    resolve(parameters["profile"], parameters.get("overrides", Overrides()))


def test_every_official_fold_of_its_deployment_resolves():
    profile = DEPLOYMENTS["official-folds"]["parameters"]["profile"]
    held_out = [resolve(profile, fold_overrides({}, fold)).data for fold in range(N_FOLDS)]
    assert [(data.split, data.fold) for data in held_out] == [
        ("official", fold) for fold in range(N_FOLDS)
    ]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_work_pool_is_literal_and_entrypoint_exists(name):
    entry = DEPLOYMENTS[name]
    assert entry["work_pool"]["name"] == "subtext-pool"
    path, _, function = entry["entrypoint"].partition(":")
    assert (ROOT / path).is_file()
    assert FLOWS[entry["entrypoint"]].fn.__name__ == function


def test_pull_step_is_resolved_when_deploying():
    [step] = CONTENT["pull"]
    directory = step["prefect.deployments.steps.set_working_directory"]["directory"]
    assert directory == "{{ $PWD }}"


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        pytest.param({"grpo": {"max_stepz": 3}}, "overrides.grpo.max_stepz", id="typo-in-field"),
        pytest.param({"grop": {"max_steps": 3}}, "overrides.grop", id="typo-in-section"),
        pytest.param({"data": {"eval_ratio": 1.5}}, "overrides.data.eval_ratio", id="out-of-range"),
        pytest.param({"grpo": 3}, "overrides.grpo", id="section-is-no-object"),
    ],
)
def test_bad_overrides_name_the_field(overrides, named):
    with pytest.raises(ParameterTypeError, match=named):
        train_flow.validate_parameters({"overrides": overrides})


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        pytest.param({"source": "friends"}, "source", id="unknown-source"),
        pytest.param({"n_workers": -1}, "n_workers", id="negative-processes"),
        pytest.param({"allow_missing": "perhaps"}, "allow_missing", id="not-a-boolean"),
        pytest.param({"n_workers": 1.5}, "n_workers", id="half-a-process"),
    ],
)
def test_bad_parameters_of_the_data_flow_are_named(parameters, named):
    with pytest.raises(ParameterTypeError, match=named):
        data_flow.validate_parameters(parameters)


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        pytest.param({"protocol": "folds"}, "protocol", id="unknown-protocol"),
        pytest.param({"profile": "t5"}, "profile", id="unknown-profile"),
        pytest.param({"model": 3}, "model", id="version-without-name"),
        pytest.param(
            {"overrides": {"evaluation": {"n_eval_clips": -1}}}, "n_eval_clips", id="negative-clips"
        ),
    ],
)
def test_bad_parameters_of_the_evaluation_are_named(parameters, named):
    with pytest.raises(ParameterTypeError, match=named):
        evaluate_flow.validate_parameters(parameters)


def test_null_means_as_the_profile_says():
    parameters = train_flow.validate_parameters({"overrides": {"grpo": {"max_steps": None}}})
    assert resolve("t4", parameters["overrides"]) == resolve("t4")


def test_schema_keeps_sections_closed_objects():
    from prefect.utilities.callables import parameter_schema

    schema = parameter_schema(train_flow)
    sections = schema.definitions["Overrides"]["properties"]
    assert {"data", "grpo", "publish"} <= set(sections)
    assert all("anyOf" not in section for section in sections.values())
    assert schema.definitions["GrpoOverrides"]["additionalProperties"] is False


@pytest.mark.parametrize("file", sorted((ROOT / "flows").glob("*.py")), ids=lambda path: path.name)
def test_flow_files_hijack_no_import(file):
    # A path entrypoint puts flows/ first on sys.path: flows/evaluate.py would be `import evaluate`.
    if file.stem != "__init__":
        assert importlib.util.find_spec(file.stem) is None
