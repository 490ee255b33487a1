"""Asks the runner on a device to do something, and turns its answers and errors into ours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from edgectl.errors import (
    BusyError,
    ConfigurationError,
    DeviceError,
    EdgectlError,
    OutputMismatchError,
    UsageError,
)
from edgectl.remote.base import CommandResult, Device

__all__ = ["RunnerHandle", "call_runner"]

_ERRORS: dict[int, type[EdgectlError]] = {
    1: EdgectlError,
    2: UsageError,
    3: ConfigurationError,
    7: DeviceError,
    8: OutputMismatchError,
    75: BusyError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerHandle:
    """The runner that is ready on a device: how to start it, and what it took to get there.

    ``argv`` starts it (a verb follows); ``bytes_sent`` is 0 when all was there already.
    """

    root: str
    python: str
    python_version: tuple[int, int]
    machine: str
    argv: tuple[str, ...]
    runner_digest: str
    environment_digest: str
    bytes_sent: int

    @property
    def incoming(self) -> str:
        """The folder of the device in which transfers arrive."""
        return f"{self.root}/incoming"


def call_runner(
    device: Device,
    handle: RunnerHandle,
    verb: str,
    request: dict[str, Any],
    *,
    timeout_s: float = 120.0,
) -> dict[str, Any]:
    """One verb: a document there, a document back.

    Raises:
        EdgectlError: of the class whose exit code the runner gave, with its words.
        ConnectionFailedError: the connection broke.
    """
    result = device.run(
        [*handle.argv, verb], stdin=json.dumps(request).encode(), timeout_s=timeout_s
    )
    return read_answer(device, result, what=f"the runner's answer to {verb!r}")


def read_answer(device: Device, result: CommandResult, *, what: str) -> dict[str, Any]:
    """The one document that a command on the device printed.

    Raises:
        EdgectlError: it is an error document, or no document.
    """
    try:
        document = json.loads(result.stdout)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        tail = result.stderr.decode("utf-8", "replace").strip().splitlines()[-3:]
        raise DeviceError(
            f"{device.label}: {what} was not understood (exit code {result.exit_code}): "
            f"{' | '.join(tail) or 'nothing on standard error'}",
            cause="the runner was ended on the device, or its files are damaged",
            next_step="run 'edgectl doctor DEVICE'",
        )
    if "error" in document:
        raise _error(document["error"], result.exit_code)
    if result.exit_code != 0:
        raise DeviceError(f"{device.label}: {what} came with exit code {result.exit_code}")
    return document


def _error(error: Any, exit_code: int) -> EdgectlError:
    if not isinstance(error, dict):
        return DeviceError(f"the device failed (exit code {exit_code})")
    kind = _ERRORS.get(error.get("code", exit_code), DeviceError)
    return kind(
        str(error.get("message", "the device failed")),
        cause=error.get("cause"),
        next_step=error.get("next_step"),
    )
