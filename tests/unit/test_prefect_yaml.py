"""prefect.yaml, as `prefect deploy` will read it: no server needed."""

import importlib.util
from pathlib import Path

import pytest
import yaml
from prefect.exceptions import ParameterTypeError

from flows.train_flow import train_flow
from subtext.config import Overrides
from subtext.profiles import Profile, resolve

ROOT = Path(__file__).resolve().parents[2]
CONTENT = yaml.safe_load((ROOT / "prefect.yaml").read_text("utf-8"))
DEPLOYMENTS = {entry["name"]: entry for entry in CONTENT["deployments"]}


def test_deployments_and_their_profiles():
    profiles = {name: entry["parameters"] for name, entry in DEPLOYMENTS.items()}
    assert profiles == {
        "train": {"profile": "t4"},
        "train-cpu": {"profile": "cpu"},
        "train-demo": {"profile": "demo"},
    }
    assert train_flow.name == "subtext"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_parameters_fit_the_flow_and_resolve(name):
    parameters = train_flow.validate_parameters(DEPLOYMENTS[name]["parameters"])
    assert isinstance(parameters["profile"], Profile)
    resolve(parameters["profile"], parameters.get("overrides", Overrides()))


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_work_pool_is_literal_and_entrypoint_exists(name):
    entry = DEPLOYMENTS[name]
    assert entry["work_pool"]["name"] == "subtext-pool"
    path, _, function = entry["entrypoint"].partition(":")
    assert (ROOT / path).is_file()
    assert function == "train_flow"


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
