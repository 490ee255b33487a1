"""Tells systemd how the service is (sd_notify); does nothing where systemd does not ask."""

from __future__ import annotations

import contextlib
import os
import socket

__all__ = ["notify", "watchdog_interval_s"]


def notify(*assignments: str) -> None:
    """For example ``notify("READY=1", "STATUS=serving")``."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # an abstract socket
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
    ):
        sender.sendto("\n".join(assignments).encode(), address)


def watchdog_interval_s() -> float | None:
    """How often a sign of life is due: a third of what systemd allows; ``None`` without it."""
    text = os.environ.get("WATCHDOG_USEC", "")
    owner = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    if not text.isdigit() or int(text) == 0 or owner != str(os.getpid()):
        return None
    return int(text) / 3e6
