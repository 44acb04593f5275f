"""How many threads torch gets, and how they wait."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from subtext.policy import threads


@pytest.fixture
def torch_threads() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("torch_threads")
@pytest.mark.parametrize("wanted", [1, 3])
def test_explicit_number_is_honoured(wanted: int) -> None:
    import torch

    assert threads.set_threads(wanted) == wanted
    assert torch.get_num_threads() == wanted


@pytest.mark.usefixtures("torch_threads")
def test_zero_means_as_many_as_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(threads, "free_cores", lambda: 2)
    assert threads.set_threads(0) == 2
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("busy", "allowed", "free"),
    [
        pytest.param([0.0, 0.0], {0, 1}, 2, id="idle"),
        pytest.param([100.0, 100.0], {0, 1}, 1, id="busy-machine-still-gets-one"),
        pytest.param([90.0, 10.0, 20.0], {0, 1, 2}, 2, id="partly"),
        pytest.param([0.0, 0.0, 0.0, 0.0], {2}, 1, id="pinned-to-one-core"),
        pytest.param([5.0, 95.0, 5.0], {0, 2}, 2, id="pinned-beside-a-busy-core"),
    ],
)
def test_free_cores_are_allowed_and_idle(
    monkeypatch: pytest.MonkeyPatch, busy: list[float], allowed: set[int], free: int
) -> None:
    import psutil

    monkeypatch.setattr(psutil, "cpu_percent", lambda interval, percpu: busy)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: allowed, raising=False)
    assert threads.free_cores() == free


def test_waiting_policy_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    threads.wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


def test_threads_wait_passively_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set first, so that monkeypatch restores what wait_passively writes.
    monkeypatch.setenv("OMP_WAIT_POLICY", "")
    monkeypatch.delenv("OMP_WAIT_POLICY")
    threads.wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
