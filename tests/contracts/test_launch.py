"""Training in two real processes on the CPU: the same data seen once, one of them writes, and what
ends one of them ends the step for both."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pandas as pd
import psutil
import pytest
from support.corpus import write_corpus

from subtext import strict_json
from subtext.errors import TrainingError
from subtext.policy.checkpoints import newest_checkpoint
from subtext.policy.train import train_policy
from subtext.prepare import prepare_run
from subtext.progress import Progress, Watcher
from subtext.run_dir import RunDir

STEPS = 4
Prepare = Callable[[int], RunDir]

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def prepare(tmp_path_factory) -> Iterator[Prepare]:
    """Prepares a run that `n` processes train, on four completions a step in all."""
    home = tmp_path_factory.mktemp("home")
    write_corpus(home / "corpus", n_clips=12)
    numbers = itertools.count()

    def prepared(n: int) -> RunDir:
        overrides = {
            "data": {"root": "corpus", "n_train_rows": 16},
            "lora": {"r": 4, "alpha": 8},
            "warm_start": {"steps": 1, "batch_size": 2, "n_examples": 8},
            "grpo": {"max_steps": STEPS, "num_generations": 2, "max_completion_length": 8},
            "training": {
                "per_device_train_batch_size": 4 // n, "num_processes": n, "num_threads": 1,
                "save_steps": STEPS,
            },
            "evaluation": {"n_eval_clips": 2},
        }  # fmt: skip
        return prepare_run("demo", overrides, default_run_id=f"run-{next(numbers)}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBTEXT_HOME", str(home))
        yield prepared


def at_step(step: int, act: Callable[[], None]) -> Watcher:
    """A watcher that acts once, when GRPO's `step` is done."""

    def watch(progress: Progress) -> None:
        if progress.stage == "grpo" and progress.step == step:
            act()

    return watch


def ranks() -> dict[str, psutil.Process]:
    """The ranks that this process has started, by number."""
    found = psutil.Process().children(recursive=True)
    return {process.environ()["RANK"]: process for process in found if is_rank(process)}


def is_rank(process: psutil.Process) -> bool:
    return "subtext.policy.rank" in process.cmdline() and "RANK" in process.environ()


def prompts_of(run: RunDir) -> list[list[str]]:
    """The prompts of each step, as the files of completions hold them."""
    files = sorted(run.completions.glob("*.parquet"))
    return [sorted(map(str, pd.read_parquet(file)["prompt"])) for file in files]


def test_two_processes_do_what_one_does(prepare):
    alone, together = prepare(1), prepare(2)
    seen: list[Progress] = []
    train_policy(alone)
    result = train_policy(together, seen.append)

    assert prompts_of(together) == prompts_of(alone)
    assert all(len(prompts) == 4 for prompts in prompts_of(together))
    steps = [p.step for p in seen if p.stage == "grpo" and "train/reward" in p.metrics]
    assert steps == [1, 2, 3, 4], "the first rank alone tells"
    history = strict_json.read(together.log_history)
    assert [record["step"] for record in history if "reward" in record] == steps
    assert result["finished"]
    assert newest_checkpoint(together).step == STEPS
    assert not ranks()


def test_a_dead_rank_ends_the_step_and_the_run_goes_on(prepare):
    run = prepare(2)

    def kill_the_second() -> None:
        ranks()["1"].kill()

    with pytest.raises(TrainingError, match=r"GRPO stopped after step 2|one of the 2 processes"):
        train_policy(run, at_step(2, kill_the_second))
    assert not ranks()
    assert newest_checkpoint(run) is None
    result = train_policy(run)
    assert result["finished"]
    assert result["resumed_at"] == [0]


def test_the_ranks_end_with_the_process_that_listens(prepare):
    run = prepare(2)
    script = """
import sys
from pathlib import Path
from subtext.policy.train import train_policy
from subtext.run_dir import RunDir
train_policy(RunDir(Path(sys.argv[1])), lambda p: print(p.stage, p.step, flush=True))
"""
    command = [sys.executable, "-c", script, str(run.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert any(line == "grpo 1\n" for line in process.stdout)
        working = psutil.Process(process.pid).children(recursive=True)
        assert len([each for each in working if is_rank(each)]) == 2
        process.kill()
    _, alive = psutil.wait_procs(working, 20)
    assert not alive, "two could write to one run"
    assert train_policy(run)["finished"]


def test_a_signal_lets_the_ranks_finish_and_save_their_step(prepare):
    run = prepare(2)
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Prefect's, it raises
    try:
        with pytest.raises(KeyboardInterrupt):
            train_policy(run, at_step(1, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not ranks()
    saved = newest_checkpoint(run)
    assert saved is not None
    assert saved.step in (1, 2, 3)
    steps: list[int] = []
    train_policy(run, lambda p: steps.append(p.step) if "train/reward" in p.metrics else None)
    assert steps == list(range(saved.step + 1, STEPS + 1))
