"""The one seam to a device: run a command, put a file, get a file, make a directory listing never.

`SshDevice`, `LocalDevice` and the fake of the tests implement it; everything above speaks to a
device only through it, so that a test can stand in for a Pi and an emulator is just a port.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["PARTIAL_SUFFIX", "CommandResult", "Device", "Progress", "describe_command"]

PARTIAL_SUFFIX = ".part"
"""What a file is called on the device until all of it is there."""

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command on the device left behind."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes


class Device(Protocol):
    """A machine that edgectl can deploy to."""

    @property
    def label(self) -> str:
        """How messages name it, for example ``pi@raspberrypi.local:22``."""
        ...

    @property
    def emulated(self) -> bool:
        """True when latencies measured there are not a Pi's."""
        ...

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float = 60.0,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> CommandResult:
        """Runs one command (quoted by us, no shell text) and drains both of its streams.

        A non-zero exit code is returned, not raised.

        Raises:
            DeviceError: no end within ``timeout_s``; the command was ended on the device.
            ConnectionFailedError: the connection broke.
        """
        ...

    def put(
        self,
        source: Path | bytes,
        destination: str,
        *,
        mode: int = 0o644,
        offset: int = 0,
        progress: Progress | None = None,
        timeout_s: float = 600.0,
    ) -> int:
        """Writes a file on the device (from byte ``offset`` on) and returns the bytes sent.

        ``timeout_s`` is how long the transfer may stand still, not how long it may take. The
        file is written under ``destination + ".part"`` and renamed when it is complete; with an
        ``offset``, that partial file must hold at least so many bytes (`partial_size`).
        """
        ...

    def partial_size(self, destination: str) -> int:
        """Bytes that an interrupted `put` to ``destination`` left behind; 0 if none."""
        ...

    def get(self, source: str, *, max_bytes: int = 1 << 30, timeout_s: float = 600.0) -> bytes:
        """Reads a whole file of the device."""
        ...

    def close(self) -> None:
        """Ends the connection; the device object cannot be used afterwards."""
        ...


def describe_command(argv: Sequence[str]) -> str:
    """The command as one would type it, cut to a length that fits a message."""
    text = shlex.join(argv)
    return text if len(text) <= 100 else text[:97] + "..."
