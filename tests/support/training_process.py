"""A training in a process of its own, which is killed at a chosen point or goes on to the end.

Processes are forked from one that has imported the libraries, so that each starts at once.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from subtext.rewards import seed_reward
from subtext.run_dir import RunDir

LIMIT_S = 120
KILLED = -signal.SIGKILL
TERMINATED = 128 + signal.SIGTERM

Point = Callable[[], None]
"""Called before training starts: arranges what will end the process."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["trl", "peft", "subtext.policy.train"])


def letters(prompts: Any, completions: list[list[dict[str, str]]], **columns: Any) -> list[float]:
    """The seed's reward, which is 0 for all that an untaught policy writes, and a bit a letter."""
    rewards = seed_reward(prompts, completions, **columns)
    counts = [sum(letter.isalpha() for letter in answer[0]["content"]) for answer in completions]
    return [reward + n / 100 for reward, n in zip(rewards, counts, strict=True)]


def train_in_process(run: RunDir, point: Point) -> int:
    """Train `run` in a process of its own and return its exit code."""
    environment = {name: os.environ[name] for name in ("SUBTEXT_HOME", "SUBTEXT_CACHE")}
    process = _context.Process(target=_train, args=(environment, run.path, point))
    process.start()
    process.join(LIMIT_S)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"{run.run_id} still trained after {LIMIT_S} s")
    return process.exitcode


def _train(environment: dict[str, str], path: Path, point: Point) -> None:
    os.environ.update(environment)
    from subtext.policy.train import train_policy

    point()
    train_policy(RunDir(path), reward=letters)


def on_call(number: int, act: Callable[[], None], function: Callable[..., Any]) -> Any:
    """`function` under its own name; its call `number`, from 1, acts first."""
    numbers = itertools.count(1)

    @functools.wraps(function)
    def acting(*args: Any, **kwargs: Any) -> Any:
        if next(numbers) == number:
            act()
        return function(*args, **kwargs)

    return acting


def kill() -> None:
    """End this process as the system does when memory is out."""
    os.kill(os.getpid(), signal.SIGKILL)


def terminate() -> None:
    """Ask this process to end, as a scheduler does."""
    os.kill(os.getpid(), signal.SIGTERM)


def killed_in_the_warm_start() -> None:
    """In its second and last optimiser step."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(on_call(2, kill, lambda *_: None))


def killed_while_the_warm_adapter_is_saved() -> None:
    """Its weights are written, its record is not."""
    from subtext.policy import load

    load._name_base = on_call(1, kill, load._name_base)


def killed_in_step_2() -> None:
    """Before any checkpoint: the answers of step 2 are being rewarded."""
    _in_step(2, kill)


def killed_in_step_3() -> None:
    """After the checkpoint of step 2."""
    _in_step(3, kill)


def terminated_in_step_4() -> None:
    """By SIGTERM, for which nobody has installed a handler."""
    _in_step(4, terminate)


def _in_step(step: int, act: Callable[[], None]) -> None:
    globals()["letters"] = on_call(step, act, letters)  # which is asked once a step


def killed_while_step_2_is_saved() -> None:
    """The weights are written, the optimiser's state is half written."""
    import torch

    save = torch.save

    def half(content: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        save(content, path, *args, **kwargs)
        if Path(path).name == "optimizer.pt":
            os.truncate(path, Path(path).stat().st_size // 2)
            kill()

    torch.save = half


def killed_while_step_2_gives_way() -> None:
    """The checkpoint of step 4 is whole, that of step 2 is half deleted."""
    from transformers import trainer_utils

    def half(folder: str, **kwargs: Any) -> None:
        for path in sorted(Path(folder).iterdir())[::2]:
            path.unlink()
        kill()

    trainer_utils.shutil = SimpleNamespace(rmtree=half)


def killed_while_the_adapter_is_saved() -> None:
    """After the last step: saved after the checkpoints of steps 2 and 4, and at the end."""
    from subtext.policy import load

    # The warm adapter was the first.
    load._name_base = on_call(4, kill, load._name_base)
