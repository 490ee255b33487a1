"""The supervisor's side of one worker: its process, its messages, and why it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from edgectl_runner.failures import DEVICE, RunnerError
from edgectl_runner.service.settings import ServiceConfig

__all__ = ["WorkerProcess"]

_ENDED_BY = {
    signal.SIGILL: "an instruction that this processor does not have: it was compiled for another",
    signal.SIGSEGV: "a fault in native code",
    signal.SIGBUS: "a read error of the card, or a file that changed",
    signal.SIGKILL: "a kill, by the kernel when memory ran out or by somebody",
}
MAX_LINE_BYTES = 65536


class WorkerProcess:
    """A started worker; ``last_beat`` is on the monotonic clock."""

    def __init__(
        self, config: ServiceConfig, config_path: Path, root: Path, listening: socket.socket
    ):
        self.config = config
        self.listening = listening
        self.ready = False
        self.error: dict[str, Any] | None = None
        self.started = self.last_beat = time.monotonic()
        self.kill_at: float | None = None
        self._buffer = b""
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        environment = {k: v for k, v in os.environ.items() if k not in ("NOTIFY_SOCKET",)}
        if config.python_path:
            environment["PYTHONPATH"] = config.python_path
        command = [sys.executable, "-P", "-m", "edgectl_runner.service.worker"]
        descriptors = (listening.fileno(), theirs.fileno())
        with theirs:
            self.process = subprocess.Popen(
                [*command, str(config_path), str(root), *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
                env=environment,
            )

    def read_messages(self) -> None:
        """Takes in what the worker said."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._buffer += self.socket.recv(MAX_LINE_BYTES)
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self.last_beat = time.monotonic()
            if line == b"ready":
                self.ready = True
            elif line.startswith(b"failed "):
                with contextlib.suppress(ValueError):
                    self.error = json.loads(line.removeprefix(b"failed "))["error"]

    def stop(self) -> None:
        """Lets it answer what it has accepted; it is killed if that takes too long."""
        self.kill_at = time.monotonic() + self.config.limits.drain_timeout_s + 5.0
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    def ended(self) -> bool:
        """Whether it is gone; what it said last has then been read."""
        if self.process.poll() is None:
            return False
        self.read_messages()
        return True

    def why(self) -> dict[str, Any]:
        """Why it ended, as an error document's inside."""
        if self.error is not None:
            return self.error
        code = self.process.returncode
        if code is not None and code < 0:
            reason = _ENDED_BY.get(signal.Signals(-code), signal.Signals(-code).name)
            return _error(f"the model's process was ended by {reason}")
        return _error(f"the model's process ended with exit code {code}; see the service's log")

    def close(self) -> None:
        """Forgets the socket to it."""
        self.socket.close()


def _error(message: str) -> dict[str, Any]:
    document: dict[str, Any] = RunnerError(
        message, code=DEVICE, next_step="edgectl serve logs"
    ).to_document()["error"]
    return document
