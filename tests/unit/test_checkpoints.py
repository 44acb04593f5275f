"""Checkpoints that a kill, a full disk or a careless copy left half there are told from whole ones,
without reading a pickle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from subtext.policy.checkpoints import Checkpoint, checkpoint_fault, newest_checkpoint
from subtext.run_dir import RunDir

STEP = 4
WEIGHTS = "adapter_model.safetensors"
ARCHIVES = ("optimizer.pt", "scheduler.pt", "rng_state.pth")


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run").create()


def write_checkpoint(run: RunDir, step: int) -> Path:
    """Laid out as TRL does, with a scaler and a reference adapter as well."""
    import torch
    from safetensors.torch import save_file

    folder = run.path / f"checkpoint-{step}"
    (folder / "ref").mkdir(parents=True)
    for path in (folder / WEIGHTS, folder / "ref" / WEIGHTS):
        save_file({"a": torch.ones(300), "b": torch.zeros(7, 2)}, path, {"format": "pt"})
    for name in (*ARCHIVES, "scaler.pt"):
        torch.save({"state": torch.arange(500), "lr": 0.5}, folder / name)
    state = {"global_step": step, "log_history": [{"reward": float("nan")}]}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder


def cut(name: str, share: float = 0.5) -> Callable[[Path], None]:
    def cutting(folder: Path) -> None:
        os.truncate(folder / name, int((folder / name).stat().st_size * share))

    return cutting


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def with_text(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def flipped(name: str) -> Callable[[Path], None]:
    """One byte of a tensor is another: the disk's fault, not a kill's."""

    def flipping(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        place = content.index(bytes([200, 0, 0, 0, 0, 0, 0, 0]))
        content[place] ^= 1
        (folder / name).write_bytes(content)

    return flipping


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        *((without(name), f"there is no {name}") for name in (*ARCHIVES, WEIGHTS)),
        *((cut(name), f"{name} is cut short") for name in (*ARCHIVES, "scaler.pt")),
        *((cut(name, 0.98), f"{name} is cut short") for name in ARCHIVES),
        *((cut(name, 0), f"{name} is cut short") for name in ARCHIVES),
        (flipped("optimizer.pt"), "optimizer.pt is damaged"),
        (without("trainer_state.json"), "there is no trainer_state.json"),
        (cut("trainer_state.json"), "trainer_state.json can't be read"),
        (cut("trainer_state.json", 0), "trainer_state.json can't be read"),
        (with_text("trainer_state.json", "[]"), "holds no trainer's state"),
        (with_text("trainer_state.json", '{"global_step": 4}'), "holds no trainer's state"),
        (
            with_text("trainer_state.json", '{"global_step": 5, "log_history": []}'),
            "is of step 5",
        ),
        (cut(WEIGHTS, 0), f"{WEIGHTS} has no header"),
        (cut(WEIGHTS, 0.05), f"{WEIGHTS} has no header"),
        (cut(WEIGHTS), f"{WEIGHTS} has "),
        (cut(WEIGHTS, 0.99), f"{WEIGHTS} has "),
        (with_text(WEIGHTS, "\1\0\0\0\0\0\0\0["), f"{WEIGHTS} has no header"),
        (with_text(WEIGHTS, "\2\0\0\0\0\0\0\0[]"), f"{WEIGHTS} has no header"),
        (with_text(WEIGHTS, '\7\0\0\0\0\0\0\0{"a":1}'), f"{WEIGHTS} has no header"),
        (cut(f"ref/{WEIGHTS}"), f"{WEIGHTS} has "),
    ],
)
def test_what_is_not_whole_is_named_and_goes(run, caplog, harm, said):
    before, folder = write_checkpoint(run, 2), write_checkpoint(run, STEP)
    assert checkpoint_fault(folder, STEP) is None
    harm(folder)
    assert newest_checkpoint(run) == Checkpoint(2, before)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(folder) in caplog.text
    assert said in caplog.text
    assert not folder.exists(), "TRL would save step 4 into what is left"
    assert run.checkpoints == {2: before}


def test_the_newest_is_taken_by_step(run):
    for step in (100, 20, 3):
        folder = write_checkpoint(run, step)
    assert folder.name == "checkpoint-3"
    newest = newest_checkpoint(run)
    assert newest == Checkpoint(100, run.path / "checkpoint-100")
    assert len(run.checkpoints) == 3


def test_an_older_half_deleted_one_goes_too(run):
    old, newest = write_checkpoint(run, 2), write_checkpoint(run, STEP)
    without("optimizer.pt")(old)
    assert newest_checkpoint(run) == Checkpoint(STEP, newest)
    assert run.checkpoints == {STEP: newest}


def test_a_run_without_a_checkpoint_has_none(run):
    (run.path / "checkpoint-best").mkdir()
    assert newest_checkpoint(run) is None
    assert (run.path / "checkpoint-best").exists()


def test_nothing_is_unpickled(run, tmp_path):
    """A pickle that would leave a trace when read, in archives that are whole."""
    import torch

    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "sprung",)

    folder = write_checkpoint(run, STEP)
    for name in ARCHIVES:
        torch.save(Trap(), folder / name)
    code = (
        "import sys; from pathlib import Path; from subtext.run_dir import RunDir; "
        "from subtext.policy.checkpoints import newest_checkpoint; "
        f"assert newest_checkpoint(RunDir(Path({str(run.path)!r}))).step == {STEP}; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not (tmp_path / "sprung").exists()
