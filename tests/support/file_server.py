"""A web server of a test's own: files with byte ranges and ETags, and faults on demand."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_LONGEST_HANG_S = 20


@dataclass(frozen=True)
class Fault:
    """What happens to one request. Several may be combined."""

    status: int = 0  # answer with this status and no file; 0: off
    redirect: str = ""  # answer 302 with this address
    cut_after: int = -1  # close the connection after so many bytes of the body; -1: off
    hang_after: int = -1  # send nothing more after so many bytes of the body; -1: off
    ignore_range: bool = False  # answer 200 with the whole file
    ignore_if_range: bool = False  # answer 206 though the file is another
    shift: int = 0  # answer 206 with a part that begins so many bytes later
    extra_length: int = 0  # promise so many bytes more than the file has
    chunked: bool = False  # no Content-Length; with cut_after a clean, early end
    encoding: str = ""  # Content-Encoding to claim
    weak: bool = False  # a weak ETag


@dataclass
class FileServer:
    """`files` by path, `faults` by path, one used up a request, and the requests seen."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def plan(self, path: str, *faults: Fault) -> None:
        self.faults[path] = list(faults)

    def ranges(self, path: str) -> list[str | None]:
        """The Range header of each request for `path`, None where there was none."""
        return [headers.get("range") for asked, headers in self.requests if asked == path]


@contextmanager
def file_server(**files: bytes) -> Iterator[FileServer]:
    """A server on a free port of 127.0.0.1 that offers `files` as /name."""
    state = FileServer("")

    class Handler(_Handler):
        server_state = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    state.files |= {f"/{name}": content for name, content in files.items()}
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        state.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_state: FileServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Tests read `requests` instead."""

    def do_GET(self) -> None:
        state, path = self.server_state, self.path.partition("?")[0]
        state.requests.append((path, {name.lower(): value for name, value in self.headers.items()}))
        planned = state.faults.get(path, [])
        fault = planned.pop(0) if planned else Fault()
        content = state.files.get(path)
        if fault.redirect:
            self._empty(302, {"Location": fault.redirect})
        elif fault.status or content is None:
            self._empty(fault.status or 404, {})
        else:
            self._file(content, fault)

    def _empty(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _file(self, content: bytes, fault: Fault) -> None:
        etag = ("W/" if fault.weak else "") + f'"{hashlib.md5(content).hexdigest()}"'
        asked, same = self.headers.get("Range"), self.headers.get("If-Range", etag) == etag
        start = 0
        if asked and not fault.ignore_range and (same or fault.ignore_if_range):
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self._empty(416, {"Content-Range": f"bytes */{len(content)}"})
                return
            start += fault.shift
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        body = content[start:]
        self.send_header("ETag", etag)
        if fault.encoding:
            self.send_header("Content-Encoding", fault.encoding)
        if fault.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body) + fault.extra_length))
        self.end_headers()
        stop = max(fault.cut_after, fault.hang_after)
        sent = body if stop < 0 else body[:stop]
        with suppress(ConnectionError):  # the client may have seen enough
            chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(sent), sent)
            self.wfile.write(chunk if fault.chunked else sent)
        if fault.hang_after >= 0:
            self.server_state.stopping.wait(_LONGEST_HANG_S)
        self.close_connection = stop >= 0 or fault.extra_length > 0
