"""A real Prefect server, and workers that poll it, each in its own process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_START_S = 180
_STOP_S = 30
_CLI_S = 120
_DROPPED = ("PREFECT_", "MLFLOW_", "SUBTEXT_HOME", "SUBTEXT_DATA_ROOT")
CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass
class PrefectServer:
    """A server: the API's address and the environment that leads clients to it."""

    url: str
    environment: Mapping[str, str]
    home: Path
    _process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it on its port, with the database that is in `home` already or a new one."""
        port = self.url.removesuffix("/api").rpartition(":")[2]
        command = [
            sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1",
            "--port", port, "--no-ui",
        ]  # fmt: skip
        log = self.home / "server.log"
        with log.open("a") as stream:
            self._process = started = _started(command, self.home, self.environment, stream)
        deadline = time.monotonic() + _START_S
        while not _healthy(self.url):
            if started.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the Prefect server did not start:\n{log.read_text()}")
            time.sleep(0.3)

    def kill(self) -> None:
        """Take it away at once, with the processes that it started."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End it, unless it is gone already."""
        if self._process is not None:
            _stop(self._process)

    def cli(self, *arguments: str) -> str:
        """Run `prefect ARGUMENTS` in the checkout; return what it printed, which must succeed."""
        result = self.run([sys.executable, "-m", "prefect", *arguments], {}, _CLI_S)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def state_of(self, flow_run_id: str) -> str:
        """The name of a flow run's state, such as Completed."""
        with urllib.request.urlopen(f"{self.url}/flow_runs/{flow_run_id}", timeout=60) as answer:
            return str(json.load(answer)["state"]["name"])

    def run(
        self, command: Sequence[str], env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` in the checkout against this server, whatever it ends with."""
        return subprocess.run(
            command, cwd=CHECKOUT, env={**self.environment, **env},
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    @contextmanager
    def worker(self, pool: str, directory: Path, env: Mapping[str, str]) -> Iterator[Path]:
        """A process worker started in `directory`; yields its log file."""
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool]
        log = directory / "worker.log"
        with (
            log.open("w") as stream,
            _process(command, directory, {**self.environment, **env}, stream),
        ):
            yield log


@contextmanager
def prefect_server(home: Path) -> Iterator[PrefectServer]:
    """A server on a free port of 127.0.0.1 with its database in `home`, stopped at the end."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}/api"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)},
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": url,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_CLI_COLORS": "false",
        "PREFECT_CLI_WRAP_LINES": "false",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2"),
    }
    home.mkdir(parents=True, exist_ok=True)
    server = PrefectServer(url, environment, home)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def _process(
    command: Sequence[str], directory: Path, env: Mapping[str, str], stream: object
) -> Iterator[subprocess.Popen[str]]:
    process = _started(command, directory, env, stream)
    try:
        yield process
    finally:
        _stop(process)


def _started(
    command: Sequence[str], directory: Path, env: Mapping[str, str], stream: object
) -> subprocess.Popen[str]:
    # A session of its own, so that children end with it when it does not end by itself.
    return subprocess.Popen(
        command, cwd=directory, env=dict(env), stdout=stream, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # type: ignore[call-overload]  # fmt: skip


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
