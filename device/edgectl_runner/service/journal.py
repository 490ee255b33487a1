"""The service's log: journald with structured fields where it runs it, else standard error."""

from __future__ import annotations

import os
import socket
import sys

__all__ = ["INFO", "PROBLEM", "log"]

INFO = 6
PROBLEM = 3
_SOCKET = "/run/systemd/journal/socket"


def log(message: str, *, priority: int = INFO, **fields: str | int | None) -> None:
    """One event; ``fields`` become ``EDGECTL_NAME=value`` of the journal's record."""
    if os.environ.get("JOURNAL_STREAM"):
        record = {
            "MESSAGE": message,
            "PRIORITY": str(priority),
            "SYSLOG_IDENTIFIER": "edgectl",
            **{f"EDGECTL_{k.upper()}": str(v) for k, v in fields.items() if v is not None},
        }
        lines = [f"{name}={value.replace(chr(10), ' ')}" for name, value in record.items()]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.sendto("\n".join(lines).encode(), _SOCKET)
            return
        except OSError:
            pass  # standard error then
    sys.stderr.write(f"edgectl service: {message}\n")
    sys.stderr.flush()
