"""What several modules of this folder stand on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.finished_run import repositories
from support.hub import LocalHub, local_hub
from support.registered_run import environment, write_home

from subtext.config import PublishConfig


@pytest.fixture(scope="session")
def taught_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `corpus` and `base`, a tiny policy taught to answer it; to be copied."""
    home = tmp_path_factory.mktemp("taught")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(home).items():
            patch.setenv(name, value)
        write_home(home)
    return home


@pytest.fixture(scope="module")
def home(taught_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of `taught_home` for one module, which runs in it and in its environment."""
    home = tmp_path_factory.mktemp("home")
    for part in ("corpus", "base"):
        shutil.copytree(taught_home / part, home / part)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(home).items():
            patch.setenv(name, value)
        patch.chdir(home)
        yield home


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHub]:
    """A Hub that serves one module."""
    with local_hub(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture
def hub(running: LocalHub, monkeypatch: pytest.MonkeyPatch) -> LocalHub:
    """The Hub that the client talks to, without faults or requests of an earlier test."""
    running.clear()
    monkeypatch.setenv("HF_ENDPOINT", running.url)
    return running


@pytest.fixture
def publish(request: pytest.FixtureRequest) -> PublishConfig:
    """Repositories that no other test publishes to."""
    return repositories(request.node.name)
