"""MLflow and Prefect go away in mid-training: it goes on, and nothing is missing at the end."""

import shutil

import pytest
from mlflow import MlflowClient
from support.mlflow_server import mlflow_server
from support.prefect_server import prefect_server
from support.tiny_run import Flow, last_step, settings, write_home

from subtext import strict_json
from subtext.run_dir import RunDir
from subtext.tracking.metric_log import read_metric_log

pytestmark = pytest.mark.faults

ADAPTER_REPO = "local/outage-judge"


@pytest.fixture
def home(tmp_path):
    return write_home(tmp_path / "home")


@pytest.fixture
def mlflow(tmp_path):
    with mlflow_server(tmp_path / "mlflow") as running:
        yield running


def check_nothing_is_missing(uri: str, run: RunDir, max_steps: int):
    """MLflow has every metric of every step once, as log_history.json has; return its run."""
    store = MlflowClient(uri, registry_uri=uri)
    run_id = strict_json.read(run.tracking)["run_id"]
    written: dict[str, list] = {}
    for record in read_metric_log(run.metric_log):
        for name, value in record.metrics.items():
            written.setdefault(name, []).append((record.step, value))
    assert [step for step, _ in written["train/reward"]] == list(range(1, max_steps + 1))
    for name, values in written.items():
        assert sorted((m.step, m.value) for m in store.get_metric_history(run_id, name)) == values
    for record in strict_json.read(run.log_history):
        for name, value in record.items():
            if isinstance(value, float):
                assert (record["step"], value) in written[f"train/{name}"]
    return store.get_run(run_id)


def test_both_servers_are_gone_for_a_while(home, mlflow, tmp_path):
    run, max_steps = RunDir(home / "runs" / "outage"), 60
    with prefect_server(tmp_path / "prefect") as server:
        env = {"SUBTEXT_HOME": str(home), "MLFLOW_TRACKING_URI": mlflow.url}
        arguments = settings(home, run.run_id, max_steps, training__save_steps="50")
        with Flow(server, env, "flows.train_flow", *arguments) as flow:
            flow.wait_for_step(run, 3)
            server.kill()
            mlflow.kill()
            flow.wait_for_step(run, 50)
            mlflow.start()
            server.start()
            assert flow.end() == 0, flow.said
            assert server.state_of(flow.flow_run_id()) == "Completed"
    tracked = check_nothing_is_missing(mlflow.url, run, max_steps)
    assert tracked.info.status == "FINISHED"


def test_mlflow_stays_away_and_the_run_is_finished_later_and_elsewhere(
    server, hub, home, mlflow, tmp_path
):
    run, max_steps = RunDir(home / "runs" / "later"), 6
    env = {"SUBTEXT_HOME": str(home), "MLFLOW_TRACKING_URI": mlflow.url, **hub.environment}
    knobs = settings(home, run.run_id, max_steps, publish__adapter_repo=ADAPTER_REPO)
    with Flow(server, env, "flows.train_flow", *knobs) as flow:
        flow.wait_for_step(run, 2)
        mlflow.kill()
        assert flow.end() == 1, flow.said
        assert server.state_of(flow.flow_run_id()) == "Failed"
        assert f"MLFLOW_TRACKING_URI = '{mlflow.url}': did not answer" in flow.said
    assert last_step(run) == max_steps
    assert strict_json.read(run.training)["finished"]
    assert hub.requests("commit") == [], "nothing is published of a run that is not tracked"
    weights = (run.adapter / "adapter_model.safetensors").read_bytes()

    (home / "policy").rename(home / "hidden")  # on another machine it is not there
    finish_elsewhere(server, hub, run, tmp_path / "other", max_steps)
    (home / "hidden").rename(home / "policy")

    mlflow.start()
    hub.clear()
    with Flow(server, env, "flows.train_flow", *knobs) as flow:
        assert flow.end() == 0, flow.said
        assert server.state_of(flow.flow_run_id()) == "Completed"
    tracked = check_nothing_is_missing(mlflow.url, run, max_steps)
    assert tracked.info.status == "FINISHED"
    assert (run.adapter / "adapter_model.safetensors").read_bytes() == weights
    assert len(strict_json.read(run.training)["resumed_at"]) == 0, "nothing was trained again"


def finish_elsewhere(server, hub, run: RunDir, home, max_steps: int) -> None:
    """Finish a copy of `run` in another home, with data, base and MLflow store of its own."""
    write_home(home)
    (home / "data" / "mustard").rename(home / "clips")
    (home / "policy").rename(home / "base")
    copy = RunDir(home / "runs" / run.run_id)
    shutil.copytree(run.path, copy.path)
    env = {"SUBTEXT_HOME": str(home), "SUBTEXT_DATA_ROOT": "clips", **hub.environment}
    uri = f"sqlite:///{home / 'mlflow.db'}"

    arguments = ("--protocol", "run", "--model", run.run_id)
    with Flow(server, env, "flows.evaluate_flow", *arguments) as flow:
        assert flow.end() == 2, flow.said  # the base is not where it was
        assert "model.name" in flow.said
    base = ("--set", f"model.name={home / 'base'}")
    with Flow(server, env, "flows.evaluate_flow", *arguments, *base) as flow:
        assert flow.end() == 0, flow.said
    judged = check_nothing_is_missing(uri, copy, max_steps)
    assert judged.info.status == "FINISHED"
    assert judged.data.tags["uploads_missing"] == "adapter"
    assert judged.data.tags["gate.decision"] == "stay"
    assert strict_json.read(copy.tracking)["model"]["version"] == 1
    assert hub.requests("commit") == [], "evaluating uploads nothing"

    with Flow(server, env, "flows.publish_flow", "--run", run.run_id) as flow:
        assert flow.end() == 0, flow.said
    published = MlflowClient(uri, registry_uri=uri).get_run(judged.info.run_id)
    assert published.info.status == "FINISHED"
    assert "uploads_missing" not in published.data.tags
    assert published.data.tags["hub.adapter"].startswith(f"{ADAPTER_REPO}@")
    weights = "adapter_model.safetensors"
    assert hub.files(ADAPTER_REPO)[weights] == (run.adapter / weights).read_bytes()
