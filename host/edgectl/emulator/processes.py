"""What both virtual Pis, the small and the full one, ask of this computer."""

from __future__ import annotations

import socket
from pathlib import Path

__all__ = ["alive", "free_port", "is_sshd"]


def free_port() -> int:
    """A port of loopback that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_sshd(port: int, *, timeout_s: float = 20.0) -> bool:
    """Whether an SSH server answers on that port of loopback."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        with Path(f"/proc/{pid}/stat").open() as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
