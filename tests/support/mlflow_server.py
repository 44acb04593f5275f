"""A real MLflow server that can be taken away, made to hang, and brought back on its port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.ports import closed_port

_START_S = 120


class MlflowServer:
    """A server on a port of 127.0.0.1 with its database and artifacts in `home`."""

    def __init__(self, home: Path) -> None:
        port = closed_port()
        self.url = f"http://127.0.0.1:{port}"
        self._home = home
        self._command = [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
            "--workers", "1", "--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}",
            "--artifacts-destination", str(home / "artifacts"),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        log = self._home / "server.log"
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                self._command, cwd=self._home, stdout=stream, stderr=subprocess.STDOUT,
                start_new_session=True, env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
            )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while not self._healthy():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the MLflow server did not start:\n{log.read_text()}")
            time.sleep(0.3)

    def hang(self) -> None:
        """Let it accept connections and answer none."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it answer again."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Take it away at once."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@contextmanager
def mlflow_server(home: Path) -> Iterator[MlflowServer]:
    """A running server, stopped at the end."""
    home.mkdir(parents=True, exist_ok=True)
    server = MlflowServer(home)
    try:
        server.start()
        yield server
    finally:
        server.kill()
