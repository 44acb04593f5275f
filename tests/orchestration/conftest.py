"""One Prefect server and one local Hub for all tests of this folder."""

from collections.abc import Iterator

import pytest
from support.hub import LocalHub, local_hub
from support.prefect_server import PrefectServer, prefect_server


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[PrefectServer]:
    with prefect_server(tmp_path_factory.mktemp("prefect")) as running:
        yield running


@pytest.fixture(scope="session")
def session_hub(tmp_path_factory) -> Iterator[LocalHub]:
    with local_hub(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture
def hub(session_hub) -> LocalHub:
    session_hub.clear()
    return session_hub
