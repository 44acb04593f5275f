"""A local Hub in its own process, for the length of a test."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WRITE_TOKEN = "local-write-token"
READ_TOKEN = "local-read-token"
_START_S = 60
_STOP_S = 15
_CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass
class LocalHub:
    """A running server: its address, its folder, and its switches."""

    url: str
    root: Path
    process: subprocess.Popen[str]
    token: str = WRITE_TOKEN
    read_token: str = READ_TOKEN
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environment = {
            "HF_ENDPOINT": self.url,
            "HF_TOKEN": self.token,
            "HF_HUB_DISABLE_XET": "1",
        }

    def fault(self, verb: str, **details: Any) -> None:
        """Switch a fault on: `fault("commit", status=503, count=2)`."""
        self.call("POST", "/_faults", {"verb": verb, **details})

    def requests(self, verb: str = "") -> list[dict[str, Any]]:
        """What clients asked for since the last `clear`, of one verb or of all."""
        asked: list[dict[str, Any]] = self.call("GET", "/_requests")
        return [entry for entry in asked if verb in ("", entry["verb"])]

    def clear(self) -> None:
        """Switch all faults off and forget the requests so far."""
        self.call("DELETE", "/_faults")
        self.call("DELETE", "/_requests")

    def commits(self, repo_id: str, kind: str = "models") -> list[str]:
        """Titles of a repository's commits, newest first, without its initial one."""
        listed = self.call("GET", f"/api/{kind}/{repo_id}/commits/main", token=self.token)
        return [entry["title"] for entry in listed][:-1]

    def files(self, repo_id: str, kind: str = "models") -> dict[str, bytes]:
        """Path and content of every file at a repository's head."""
        info = self.call("GET", f"/api/{kind}/{repo_id}", token=self.token)
        prefix = "" if kind == "models" else f"{kind}/"
        return {
            item["rfilename"]: self.get(
                f"/{prefix}{repo_id}/resolve/main/{item['rfilename']}", token=self.token
            )
            for item in info["siblings"]
        }

    def get(self, path: str, token: str = "") -> bytes:
        """Body of a GET. Raises urllib.error.HTTPError."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    def call(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        """Send JSON and return the JSON of the answer, None where it is empty."""
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def stop(self) -> int:
        """End the server with SIGTERM and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_STOP_S)


def start_hub(root: Path, *arguments: str, token: str = WRITE_TOKEN) -> LocalHub:
    """Start `python -m subtext.local_hub` on a free port and wait until it accepts requests."""
    root.mkdir(parents=True, exist_ok=True)
    port_file = root / "port"
    port_file.unlink(missing_ok=True)
    process = subprocess.Popen(
        [
            sys.executable, "-m", "subtext.local_hub", "--root", str(root / "hub"),
            "--port-file", str(port_file), "--token", token, "--read-token", READ_TOKEN,
            *arguments,
        ],
        cwd=_CHECKOUT, env={**os.environ, "PYTHONPATH": str(_CHECKOUT)},
        stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + _START_S
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"the local Hub did not start (exit code {process.poll()})")
        time.sleep(0.05)
    url = f"http://127.0.0.1:{port_file.read_text().strip()}"
    return LocalHub(url, root / "hub", process, token)


@contextmanager
def local_hub(root: Path, *arguments: str, token: str = WRITE_TOKEN) -> Iterator[LocalHub]:
    """A local Hub over `root`, stopped at the end whatever happens."""
    hub = start_hub(root, *arguments, token=token)
    try:
        yield hub
    finally:
        if hub.process.poll() is None:
            hub.stop()


@contextmanager
def trickling_server(part: str) -> Iterator[str]:
    """A server whose answers never end: a byte of `part` (header or body) every 20 ms."""
    ended = threading.Event()

    def answer(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(65536)
            client.sendall(b"HTTP/1.1 200 OK\r\n")
            if part == "body":
                client.sendall(b"Content-Type: application/json\r\nContent-Length: 9999999\r\n\r\n")
            else:
                client.sendall(b"X-Long: ")
            while not ended.wait(0.02):
                client.sendall(b" " if part == "body" else b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while not ended.is_set():
                with suppress(OSError):
                    threading.Thread(target=answer, args=(listener.accept()[0],)).start()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
