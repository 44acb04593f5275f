"""Addresses on this machine."""

from __future__ import annotations

import socket


def closed_port() -> int:
    """A port of 127.0.0.1 on which nobody answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
