"""`python -m subtext.local_hub --root DIR`: rehearse a publish before spending GPU hours on it."""

from __future__ import annotations

import argparse
import secrets
import signal
import socket
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from subtext import strict_json
from subtext.local_hub.app import create_app
from subtext.local_hub.faults import Fault
from subtext.local_hub.observe import Role
from subtext.local_hub.store import HubError

_HOST = "127.0.0.1"
_SHUTDOWN_S = 3


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C and return the exit code."""
    options = _parser().parse_args(arguments)
    token = options.token or f"local-{secrets.token_hex(8)}"
    tokens: dict[str, Role] = {token: "write"}
    tokens |= dict.fromkeys(options.read_token, "read")
    try:
        app = create_app(options.root, tokens, options.fault)
        listener = _listen(options.port)
    except (HubError, OSError) as error:
        print(f"local Hub: {error}", file=sys.stderr)
        return 2
    port = listener.getsockname()[1]
    _announce(options.root, f"http://{_HOST}:{port}", token)
    if options.port_file:
        strict_json.write_text(options.port_file, f"{port}\n")
    _serve(app, listener)
    if options.port_file:
        options.port_file.unlink(missing_ok=True)
    return 0


def _serve(app: FastAPI, listener: socket.socket) -> None:
    config = uvicorn.Config(
        app, log_level="warning", timeout_graceful_shutdown=_SHUTDOWN_S, lifespan="off"
    )  # fmt: skip
    # uvicorn finishes its requests and then raises the signal again, for whoever handled it before.
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: None)
    uvicorn.Server(config).run(sockets=[listener])


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((_HOST, port))
    listener.listen()
    return listener


def _announce(root: Path, url: str, token: str) -> None:
    print(f"Local Hub on {url}, files in {root}. Stop it with Ctrl-C. To publish to it:")
    print(f"export HF_ENDPOINT={url}\nexport HF_TOKEN={token}\nexport HF_HUB_DISABLE_XET=1")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m subtext.local_hub", description=__doc__)
    add = parser.add_argument
    add("--root", type=Path, required=True, help="folder that keeps what is published")
    add("--port", type=int, default=0, help="port on 127.0.0.1; 0: a free one (default)")
    add("--port-file", type=Path, help="file that receives the port once requests are accepted")
    add("--token", default="", help="token that may write; without it a new one is made")
    add("--read-token", action="append", default=[], help="token that may only read; repeatable")
    add("--fault", type=_fault, action="append", default=[],
        help='JSON of a fault that is on from the start, as POST /_faults takes it, e.g. '
        '{"verb": "commit", "status": 503, "count": 2}; repeatable')  # fmt: skip
    return parser


def _fault(text: str) -> Fault:
    try:
        return Fault.model_validate_json(text)
    except ValidationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
