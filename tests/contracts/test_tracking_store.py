"""Which MLflow store is used, and that one which can't work is refused before training."""

from __future__ import annotations

import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import pytest
from support.ports import closed_port

from subtext import tracking
from subtext.errors import MachineError, TrackingError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project root."""
    monkeypatch.setenv("SUBTEXT_HOME", str(tmp_path))
    return tmp_path


class TestTrackingUri:
    def test_default_is_a_file_at_the_project_root(self, home: Path) -> None:
        assert tracking.tracking_uri({}) == f"sqlite:///{home}/mlflow.db"

    @pytest.mark.parametrize(
        "uri",
        [
            "http://127.0.0.1:5000",
            "postgresql://u:p@db/x",
            "sqlite:////data/mlflow.db",
            "databricks",
        ],
    )
    def test_environment_wins_unchanged(self, uri: str) -> None:
        assert tracking.tracking_uri({"MLFLOW_TRACKING_URI": uri}) == uri

    def test_relative_file_counts_from_the_project_root(self, home: Path) -> None:
        uri = tracking.tracking_uri({"MLFLOW_TRACKING_URI": "sqlite:///./x/my.db"})
        assert uri == f"sqlite:///{home}/x/my.db"


class TestCheckReachable:
    @pytest.mark.parametrize(
        ("uri", "said"),
        [
            pytest.param("file:///tmp/mlruns", "file store", id="file-scheme"),
            pytest.param("./mlruns", "file store", id="plain-path"),
            pytest.param("C:\\mlruns", "file store", id="drive-letter"),
            pytest.param("sqlite:////no/such/folder/mlflow.db", "is no folder", id="no-folder"),
            pytest.param("sqlite:///:memory:", "in memory", id="memory"),
            pytest.param("sqlite://", "in memory", id="memory-short"),
            pytest.param("sqlite:////tmp", "not a file", id="folder-as-file"),
            pytest.param("sqlite:/x.db", "sqlite:///file", id="too-few-slashes"),
            pytest.param("garbage", "file store", id="word"),
            pytest.param("foo://bar", "foo:// is no kind of store", id="unknown-scheme"),
            pytest.param("http://", "no host", id="server-without-host"),
            pytest.param("http://:5000", "no host", id="port-alone"),
            pytest.param("http://x:99999", "no possible port", id="port-too-high"),
            pytest.param("http://[x", "no host", id="no-url"),
            pytest.param("postgresql+nope://db/x", "no database URL", id="unknown-driver"),
            pytest.param("mysql://db:port/x", "no database URL", id="port-is-a-word"),
        ],
    )
    def test_unusable_store_is_refused_with_remedy(self, uri: str, said: str) -> None:
        with pytest.raises(MachineError) as caught:
            tracking.check_reachable(uri)
        (problem,) = caught.value.problems
        assert (problem.field, problem.value) == ("MLFLOW_TRACKING_URI", uri)
        assert said in problem.problem
        assert problem.remedy

    @pytest.mark.parametrize(
        ("uri", "module", "package"),
        [
            pytest.param(
                "postgresql+psycopg2://me:hunter2@db/x", "psycopg2", "psycopg2-binary", id="pg2"
            ),
            pytest.param("postgresql+psycopg://db/x", "psycopg", "psycopg[binary]", id="pg3"),
            pytest.param("mysql://me:hunter2@db/x", "MySQLdb", "mysqlclient", id="mysql"),
            pytest.param(
                "mysql+pymysql://db/x?user=me&password=hunter2", "pymysql", "pymysql", id="pymysql"
            ),
        ],
    )
    def test_database_without_its_driver_is_refused_and_the_password_hidden(
        self, uri: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MachineError, match="driver can't be imported") as caught:
            tracking.check_reachable(uri)
        (problem,) = caught.value.problems
        assert problem.field == "MLFLOW_TRACKING_URI"
        assert f"'{package}'" in problem.remedy
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize("uri", ["databricks", "databricks://profile", "mysql+pymysql://db/x"])
    def test_what_can_only_be_seen_when_the_run_starts_is_let_through(
        self, uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pymysql", ModuleType("pymysql"))
        tracking.check_reachable(uri)

    @pytest.mark.parametrize(
        ("content", "accepted"),
        [
            pytest.param(b"", True, id="empty"),
            pytest.param(b"SQLite format 3\0" + bytes(84), True, id="database"),
            pytest.param(b"{}\n", False, id="json"),
            pytest.param(b"SQLite format 2\0" + bytes(84), False, id="older-format"),
        ],
    )
    def test_a_file_that_is_there_must_be_a_database(
        self, tmp_path: Path, content: bytes, accepted: bool
    ) -> None:
        (tmp_path / "x.db").write_bytes(content)
        uri = f"sqlite:///{tmp_path}/x.db"
        if accepted:
            tracking.check_reachable(uri)
        else:
            with pytest.raises(MachineError, match="is no SQLite database"):
                tracking.check_reachable(uri)
        assert (tmp_path / "x.db").read_bytes() == content

    def test_new_file_in_a_folder_is_accepted(self, tmp_path: Path) -> None:
        tracking.check_reachable(f"sqlite:///{tmp_path}/new.db")
        assert list(tmp_path.iterdir()) == []

    def test_refused_connection_fails_at_once_and_hides_the_password(self) -> None:
        started = time.monotonic()
        with pytest.raises(TrackingError) as caught:
            tracking.check_reachable(f"http://me:hunter2@127.0.0.1:{closed_port()}")
        assert time.monotonic() - started < 10
        assert "MLFLOW_TRACKING_URI = 'http://127.0.0.1" in str(caught.value)
        assert "mlflow server" in str(caught.value)
        assert "hunter2" not in str(caught.value)

    def test_silent_server_fails_within_ten_seconds(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            started = time.monotonic()
            with pytest.raises(TrackingError, match="did not answer within 5 s"):
                tracking.check_reachable(f"http://127.0.0.1:{listener.getsockname()[1]}")
            assert time.monotonic() - started < 10

    @pytest.mark.parametrize(
        ("status", "said"),
        [
            pytest.param(200, None, id="healthy"),
            pytest.param(404, None, id="hosted-server"),
            pytest.param(403, "--allowed-hosts", id="host-name-refused"),
            pytest.param(503, "answered 503", id="ill"),
        ],
    )
    def test_server_answers(self, status: int, said: str | None) -> None:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status if self.path.startswith("/base/api/") else 500)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Keep the test's output quiet."""

        server = HTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}/base/"
        try:
            if said is None:
                tracking.check_reachable(uri)
            else:
                with pytest.raises(TrackingError, match=said):
                    tracking.check_reachable(uri)
        finally:
            server.shutdown()
            server.server_close()
