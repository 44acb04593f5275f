"""A training that is killed or told to end loses a few steps at most, and goes on as if it had
not been: real processes, real signals, the tiny policy."""

from __future__ import annotations

import errno
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support import training_process
from support.corpus import write_corpus
from support.training_process import (
    KILLED,
    TERMINATED,
    Point,
    letters,
    on_call,
    terminate,
    train_in_process,
)

from subtext import strict_json
from subtext.policy.checkpoints import checkpoint_fault
from subtext.policy.train import train_policy
from subtext.prepare import prepare_run
from subtext.progress import Progress
from subtext.run_dir import RunDir

STEPS = 4
WEIGHTS = "adapter_model.safetensors"
# What TRL measures with a clock, and its average over the steps of one process.
OF_THE_PROCESS = {
    "step_time", "train_loss", "train_runtime", "train_samples_per_second",
    "train_steps_per_second",
}  # fmt: skip

Prepare = Callable[..., RunDir]


class TerminatedError(BaseException):
    """What a handler raises that was installed before training, as Prefect's does."""


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepare]:
    """Prepares a run of its own in a home that the module's runs share."""
    home = tmp_path_factory.mktemp("home")
    write_corpus(home / "corpus", n_clips=12)
    numbers = itertools.count()

    def prepared(**sections: dict[str, Any]) -> RunDir:
        small: dict[str, dict[str, Any]] = {
            "data": {"root": "corpus", "n_train_rows": 16},
            "lora": {"r": 4, "alpha": 8},
            "warm_start": {"steps": 2, "batch_size": 2, "n_examples": 8},
            "grpo": {
                "max_steps": STEPS, "num_generations": 2, "max_completion_length": 8,
                "learning_rate": 1e-3,
            },
            "training": {
                "per_device_train_batch_size": 4, "save_steps": 2, "num_threads": 1,
                "lr_scheduler_type": "linear", "save_total_limit": 1,
            },
            "evaluation": {"n_eval_clips": 2},
        }  # fmt: skip
        overrides = {
            name: {**fields, **sections.pop(name, {})} for name, fields in small.items()
        } | sections
        return prepare_run("demo", overrides, default_run_id=f"run-{next(numbers)}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBTEXT_HOME", str(home))
        patch.setenv("SUBTEXT_CACHE", str(home / "cache"))
        yield prepared


@pytest.fixture(scope="module")
def unbroken(prepare: Prepare) -> RunDir:
    run = prepare()
    record = train_policy(run, reward=letters)
    assert (record["finished"], record["steps"], record["resumed_at"]) == (True, STEPS, [])
    return run


@pytest.fixture
def raising_handler() -> Iterator[None]:
    """Who answers SIGTERM before training does: raises, and stays installed."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise TerminatedError(number)

    before = signal.signal(signal.SIGTERM, handler)
    yield
    assert signal.signal(signal.SIGTERM, before) is handler


class Resumed:
    """A run that is trained again in this process, with what the second start did."""

    def __init__(self, run: RunDir) -> None:
        told: list[Progress] = []
        self.n_rewarded = 0

        def counted(*args: Any, **columns: Any) -> list[float]:
            self.n_rewarded += 1
            return letters(*args, **columns)

        counted.__name__ = "letters"
        self.run = run
        self.record = train_policy(run, told.append, reward=counted)
        self.warm_started = any(progress.stage == "warm_start" for progress in told)


def assert_same(run: RunDir, unbroken: RunDir) -> None:
    """Every step once, with the same figures, answers and weights as without the interruption."""
    histories = [
        [
            {name: value for name, value in record.items() if name not in OF_THE_PROCESS}
            for record in strict_json.read(one.log_history)
            if "loss" in record
        ]
        for one in (run, unbroken)
    ]
    assert [record["step"] for record in histories[0]] == [*range(1, STEPS + 1)]
    assert histories[0] == histories[1]
    assert sorted(path.name for path in run.completions.iterdir()) == [
        f"completions_{step:05d}.parquet" for step in range(1, STEPS + 1)
    ]
    for folder in ("warm_adapter", "adapter"):
        weights = [(one.path / folder / WEIGHTS).read_bytes() for one in (run, unbroken)]
        assert weights[0] == weights[1], folder
    assert {path.name for path in run.path.iterdir()} == {
        path.name for path in unbroken.path.iterdir()
    }


class TestKilled:
    @pytest.mark.parametrize(
        ("point", "resumed_at", "warm_started"),
        [
            pytest.param(
                training_process.killed_in_step_3, [2], False, marks=pytest.mark.slow,
                id="in a step after a checkpoint",
            ),
            pytest.param(
                training_process.killed_while_step_2_is_saved, [0], False,
                marks=pytest.mark.faults, id="while a checkpoint is written",
            ),
            pytest.param(
                training_process.killed_while_step_2_gives_way, [STEPS], False,
                marks=pytest.mark.faults, id="while the checkpoint before is deleted",
            ),
            pytest.param(
                training_process.killed_in_step_2, [0], False, marks=pytest.mark.faults,
                id="before a checkpoint",
            ),
            pytest.param(
                training_process.killed_in_the_warm_start, [], True, marks=pytest.mark.faults,
                id="in the warm start",
            ),
            pytest.param(
                training_process.killed_while_the_warm_adapter_is_saved, [], True,
                marks=pytest.mark.faults, id="while the warm adapter is written",
            ),
            pytest.param(
                training_process.killed_while_the_adapter_is_saved, [STEPS], False,
                marks=pytest.mark.faults, id="after the last step",
            ),
        ],
    )  # fmt: skip
    def test_goes_on_as_if_unbroken(
        self,
        prepare: Prepare,
        unbroken: RunDir,
        point: Point,
        resumed_at: list[int],
        warm_started: bool,
    ) -> None:
        run = prepare()
        assert train_in_process(run, point) == KILLED
        assert not run.read(run.training, {"finished": False})["finished"]
        seconds = run.read(run.training, {"train_runtime_s": 0})["train_runtime_s"]
        resumed = Resumed(run)
        assert resumed.record["resumed_at"] == resumed_at
        assert resumed.n_rewarded == STEPS - sum(resumed_at), "steps were taken again or left out"
        assert resumed.warm_started == warm_started
        assert (resumed.record["finished"], resumed.record["steps"]) == (True, STEPS)
        assert resumed.record["train_runtime_s"] > seconds
        assert_same(run, unbroken)

    @pytest.mark.slow
    def test_a_finished_run_is_not_trained_again(self, unbroken: RunDir) -> None:
        files = {path: path.stat().st_mtime_ns for path in unbroken.path.rglob("*")}
        again = Resumed(unbroken)
        assert again.record == strict_json.read(unbroken.training)
        assert again.n_rewarded == 0
        assert {path: path.stat().st_mtime_ns for path in unbroken.path.rglob("*")} == files

    @pytest.mark.faults
    def test_a_warm_adapter_that_was_cut_is_trained_again(
        self, prepare: Prepare, unbroken: RunDir, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = prepare()
        weights = unbroken.warm_adapter / WEIGHTS
        run.warm_adapter.mkdir()
        (run.warm_adapter / WEIGHTS).write_bytes(weights.read_bytes()[:-100])
        assert Resumed(run).warm_started
        assert "is not whole, so the warm start is repeated" in caplog.text
        assert_same(run, unbroken)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("sections", "point"),
    [
        pytest.param(
            {"grpo": {"beta": 0.1}}, training_process.killed_in_step_3,
            id="with a reference adapter",
        ),
        pytest.param(
            {"model": {"quantization": "nf4"}}, training_process.killed_in_step_3, id="four bits"
        ),
        pytest.param(
            # The second answers are those of step 3.
            {"grpo": {"num_iterations": 2}}, training_process.killed_in_step_2,
            id="answers used twice",
        ),
    ],
)  # fmt: skip
def test_other_trainings_go_on_as_if_unbroken_too(prepare, sections, point):
    unbroken, run = prepare(**sections), prepare(**sections)
    train_policy(unbroken, reward=letters)
    assert train_in_process(run, point) == KILLED
    assert Resumed(run).record["resumed_at"] == [2]
    assert_same(run, unbroken)


class TestToldToEnd:
    @pytest.mark.faults
    def test_without_a_handler_the_last_step_is_saved_before_the_end(
        self, prepare: Prepare, unbroken: RunDir
    ) -> None:
        run = prepare()
        assert train_in_process(run, training_process.terminated_in_step_4) == TERMINATED
        self.assert_saved(run, 3)
        assert Resumed(run).record["resumed_at"] == [3]
        assert_same(run, unbroken)

    @pytest.mark.slow
    def test_while_an_update_is_made_it_is_finished_first(
        self, prepare: Prepare, unbroken: RunDir, raising_handler: None
    ) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        run = prepare()
        # Two updates of the warm start come before: in the update of step 1.
        hook = register_optimizer_step_pre_hook(on_call(3, terminate, lambda *_: None))
        try:
            with pytest.raises(TerminatedError):
                train_policy(run, reward=letters)
        finally:
            hook.remove()
        self.assert_saved(run, 1)
        assert Resumed(run).record["resumed_at"] == [1]
        assert_same(run, unbroken)

    @pytest.mark.slow
    def test_ctrl_c_and_a_second_signal_while_saving(
        self,
        prepare: Prepare,
        unbroken: RunDir,
        raising_handler: None,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        import torch

        def interrupt() -> None:
            os.kill(os.getpid(), signal.SIGINT)

        # Each checkpoint saves optimiser, schedule, random numbers and arguments.
        monkeypatch.setattr(torch, "save", on_call(6, terminate, torch.save))
        run = prepare()
        with pytest.raises(KeyboardInterrupt):
            train_policy(run, reward=on_call(4, interrupt, letters))
        self.assert_saved(run, 3)
        assert Resumed(run).record["resumed_at"] == [3]
        assert_same(run, unbroken)

    @pytest.mark.faults
    def test_in_the_last_update_the_training_is_finished_first(
        self, prepare: Prepare, unbroken: RunDir, raising_handler: None
    ) -> None:
        run = prepare()

        def at_the_end(progress: Progress) -> None:
            if progress.stage == "grpo" and progress.step == STEPS:
                terminate()

        with pytest.raises(TerminatedError):
            train_policy(run, at_the_end, reward=letters)
        assert run.read(run.training)["finished"]
        assert_same(run, unbroken)

    @pytest.mark.slow
    def test_in_the_first_step_there_is_nothing_to_save(
        self, prepare: Prepare, raising_handler: None
    ) -> None:
        run = prepare(warm_start={"steps": 0})
        with pytest.raises(TerminatedError):
            train_policy(run, reward=on_call(1, terminate, letters))
        assert not run.checkpoints
        assert not run.adapter.exists()

    @pytest.mark.faults
    def test_a_disk_that_is_full_by_then_hides_no_signal(
        self,
        prepare: Prepare,
        raising_handler: None,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        import torch

        def full() -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(torch, "save", on_call(1, full, torch.save))
        run = prepare(warm_start={"steps": 0})
        with pytest.raises(TerminatedError):
            train_policy(run, reward=on_call(2, terminate, letters))
        assert "after step 1, which could not be saved" in caplog.text
        monkeypatch.undo()
        assert Resumed(run).record["resumed_at"] == [0]

    def assert_saved(self, run: RunDir, step: int) -> None:
        assert [*run.checkpoints][-1] == step
        folder = run.checkpoints[step]
        assert checkpoint_fault(folder, step) is None
        assert (run.adapter / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes()
        history = strict_json.read(run.log_history)
        assert [record["step"] for record in history] == [*range(1, step + 1)]
        record = run.read(run.training)
        assert (record["finished"], record["steps"]) == (False, step)
        assert not Path(run.model_card).exists()
