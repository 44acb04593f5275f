"""`python -m subtext.local_hub --root DIR`: rehearse a publish before spending GPU hours on it.

With a command behind `--`, the Hub serves as long as the command runs, which finds its address and
token in the environment; the exit code is the command's.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from subtext import strict_json
from subtext.errors import MachineError, Problem, reason_of
from subtext.local_hub.app import create_app
from subtext.local_hub.faults import Fault
from subtext.local_hub.observe import Role
from subtext.local_hub.store import HubError
from subtext.paths import project_root

DEFAULT_ROOT = ".local-hub"  # of `subtext hub`, below the project root
_HOST = "127.0.0.1"
_SHUTDOWN_S = 3


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C, or as long as the command runs; return the exit code."""
    options = _parser().parse_args(arguments)
    token = options.token or f"local-{secrets.token_hex(8)}"
    tokens: dict[str, Role] = {token: "write"}
    tokens |= dict.fromkeys(options.read_token, "read")
    try:
        app = create_app(options.root, tokens, options.fault)
        listener = _listen(options.port)
    except (HubError, OSError, MachineError) as error:
        print(f"local Hub: {error}", file=sys.stderr)
        return 2
    port = listener.getsockname()[1]
    variables = {
        "HF_ENDPOINT": f"http://{_HOST}:{port}",
        "HF_TOKEN": token,
        "HF_HUB_DISABLE_XET": "1",
    }
    if options.command:
        code = _serve_while(app, listener, options.command, variables)
        print(
            f"The local Hub is closed; what was published stays in {options.root}, and\n"
            f"`{_shown_again_by(options.root)}` shows it again."
        )
        return code
    _announce(options.root, variables)
    server = _server(app)
    _end_on_signals(server)
    if options.port_file:
        strict_json.write_text(options.port_file, f"{port}\n")
    server.run(sockets=[listener])
    if options.port_file:
        options.port_file.unlink(missing_ok=True)
    return 0


def _end_on_signals(server: uvicorn.Server) -> None:
    """End `server` also by a signal that comes before uvicorn listens to signals itself.

    uvicorn finishes its requests and then raises the signal again, for whoever handled it before.
    """

    def end(*_: object) -> None:
        server.should_exit = True

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, end)


def _serve_while(
    app: FastAPI, listener: socket.socket, command: list[str], variables: dict[str, str]
) -> int:
    server = _server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode
    except OSError as error:
        print(f"local Hub: {error}", file=sys.stderr)
        return 2
    finally:
        server.should_exit = True
        thread.join()


def _server(app: FastAPI) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=_SHUTDOWN_S, lifespan="off"
        )
    )


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_HOST, port))
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        reason = reason_of(error)
        problem = Problem(
            "command line", "--port", port, f"can't be listened on: {reason.rstrip('.')}",
            "Leave it out or give 0 for a free port, or choose another of 1024 to 65535.",
        )  # fmt: skip
        raise MachineError("Port refused", [problem]) from error
    return listener


def _announce(root: Path, variables: dict[str, str]) -> None:
    url = variables["HF_ENDPOINT"]
    print(f"Local Hub on {url}, files in {root}. Stop it with Ctrl-C. To publish to it:")
    print("\n".join(f"export {name}={value}" for name, value in variables.items()))
    sys.stdout.flush()


def _shown_again_by(root: Path) -> str:
    default = project_root() / DEFAULT_ROOT
    where = "" if root.resolve() == default.resolve() else f" --root {shlex.quote(str(root))}"
    return f"subtext hub{where}"


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
    add("command", nargs="*", help="command to run against this Hub, behind --")
    return parser


def _fault(text: str) -> Fault:
    try:
        return Fault.model_validate_json(text)
    except ValidationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
