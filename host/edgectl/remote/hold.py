"""Holds a device for one deployment, so that a second one is refused at once and by name."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
from collections.abc import Iterator

from edgectl.errors import DeviceError, EdgectlError
from edgectl.remote.agent_calls import RunnerHandle, call_runner, read_answer
from edgectl.remote.base import Device

__all__ = ["held"]

START_TIMEOUT_S = 60.0
MAX_HOLD_S = 6 * 3600.0


@contextlib.contextmanager
def held(device: Device, handle: RunnerHandle, *, who: str) -> Iterator[str]:
    """Runs the runner's ``hold`` beside the commands of a deployment; yields their token.

    The lock is the kernel's and ends with the connection, so a host that dies blocks nobody.

    Raises:
        BusyError: somebody else holds the device.
    """
    token = secrets.token_hex(16)
    ready = threading.Event()
    failures: list[EdgectlError] = []

    def hear(_data: bytes) -> None:
        ready.set()

    def run() -> None:
        try:
            result = device.run(
                [*handle.argv, "hold"],
                stdin=json.dumps({"token": token, "who": who}).encode(),
                timeout_s=MAX_HOLD_S,
                on_stderr=hear,
            )
            read_answer(device, result, what="the runner's answer to 'hold'")
        except EdgectlError as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="edgectl-hold", daemon=True)
    thread.start()
    try:
        if not ready.wait(START_TIMEOUT_S):
            raise DeviceError(f"{device.label} did not answer to being held for a deployment")
        if failures:
            raise failures[0]
        yield token
    finally:
        # Usually over by now: the last command of a deployment ends it on the device.
        thread.join(timeout=0.5)
        if thread.is_alive():
            with contextlib.suppress(EdgectlError):
                call_runner(device, handle, "release-hold", {"token": token}, timeout_s=30.0)
            thread.join(timeout=10.0)
