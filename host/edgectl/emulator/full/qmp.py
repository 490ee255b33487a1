"""Talks to a running qemu over its QMP socket: one command, one answer."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from edgectl.errors import DeviceError

__all__ = ["Qmp"]


class Qmp:
    """A connection to the monitor of one qemu.

    with Qmp(path) as qmp:
        qmp("set_link", name="net0", up=False)
    """

    def __init__(self, path: Path, *, timeout_s: float = 60.0):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise DeviceError(
                f"The virtual machine does not answer: {error}",
                next_step="edgectl emulator up --full",
            ) from error
        self._stream = self._socket.makefile("rb")
        self._read()
        self("qmp_capabilities")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def __call__(self, command: str, **arguments: Any) -> Any:
        """Carries out a command and returns what it returned.

        Raises:
            DeviceError: qemu refused, or went away.
        """
        request = {"execute": command, "arguments": arguments}
        try:
            self._socket.sendall(json.dumps(request).encode())
            while True:
                answer = self._read()
                if "return" in answer:
                    return answer["return"]
                if "error" in answer:
                    raise DeviceError(f"qemu refused {command}: {answer['error']['desc']}")
        except OSError as error:
            raise DeviceError(f"The virtual machine went away during {command}.") from error

    def wait_for(self, done: Callable[[Qmp], bool], what: str, *, timeout_s: float) -> None:
        """Asks again and again until ``done``.

        Raises:
            DeviceError: not within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        while not done(self):
            if time.monotonic() > deadline:
                raise DeviceError(f"The virtual machine took longer than {timeout_s:.0f} s: {what}")
            time.sleep(0.05)

    def _read(self) -> dict[str, Any]:
        line = self._stream.readline()
        if not line:
            raise DeviceError("The virtual machine went away.")
        answer: dict[str, Any] = json.loads(line)
        return answer
