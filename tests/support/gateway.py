"""A TCP gateway before a server of this machine: it can go away, come back, and cut answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class Gateway:
    """Passes connections on to `url`; its own address is `self.url`, the same before and after
    `down`. Answers to requests for a path ending in `cut_path` are cut after `cut_after` bytes, as
    often as `n_cuts` says."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._listener = _listen(0)
        self._port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.cut_path, self.cut_after, self.n_cuts = b"", 0, 0
        self.n_cut = 0
        self._open: set[socket.socket] = set()
        self._accept_from(self._listener)

    def down(self) -> None:
        """Refuse new connections and break those there are."""
        _close(self._listener)
        for connection in list(self._open):
            _close(connection)

    def up(self) -> None:
        """Listen again, at the same address."""
        self._listener = _listen(self._port)
        self._accept_from(self._listener)

    def _accept_from(self, listener: socket.socket) -> None:
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection((self._target.hostname, self._target.port))
                self._open |= {client, server}
                asked: list[bytes] = [b""]
                for source, sink in ((client, server), (server, client)):
                    work = threading.Thread(
                        target=self._pass, args=(source, sink, asked, source is client), daemon=True
                    )
                    work.start()

    def _pass(
        self, source: socket.socket, sink: socket.socket, asked: list[bytes], is_request: bool
    ) -> None:
        n_passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if is_request:
                    asked[0] = data.partition(b"\r\n")[0]
                    n_passed = 0
                elif self.n_cut < self.n_cuts and self.cut_path + b" HTTP" in asked[0]:
                    left = self.cut_after - n_passed
                    sink.sendall(data[: max(left, 0)])
                    n_passed += len(data)
                    if n_passed >= self.cut_after:
                        self.n_cut += 1
                        break
                    continue
                sink.sendall(data)
        _close(source)
        _close(sink)


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
