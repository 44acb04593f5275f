"""What several modules of this folder stand on, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.registered_run import environment, write_home


@pytest.fixture(scope="session")
def taught_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `corpus` and `base`, a tiny policy taught to answer it; to be copied."""
    home = tmp_path_factory.mktemp("taught")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(home).items():
            patch.setenv(name, value)
        write_home(home)
    return home
