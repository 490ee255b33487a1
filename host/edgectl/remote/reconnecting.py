"""Pushes over a connection that keeps breaking: connect again, go on where it stopped."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgectl.errors import BusyError, ConnectionFailedError, EdgectlError
from edgectl.remote.agent_calls import RunnerHandle
from edgectl.remote.base import Device
from edgectl.remote.push import PushReport, push_bundle

__all__ = ["push_with_reconnects"]

ATTEMPTS = 12
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0


def push_with_reconnects(
    connect: Callable[[], Device],
    handle: RunnerHandle,
    bundle_path: Path,
    *,
    attempts: int = ATTEMPTS,
    notify: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> PushReport:
    """`push_bundle` with a fresh connection after each break; each break costs what was in flight.

    Args:
        connect: makes a connection; called once per attempt.
        handle: the runner on the device.
        bundle_path: the ``.edgectl`` file.
        attempts: connections in all.
        notify: told in a sentence about each break.
        options: of `push_bundle`.

    Raises:
        ConnectionFailedError: the last attempt broke as well.
        EdgectlError: as from `push_bundle`; nothing else is tried again.
    """
    for attempt in range(1, attempts + 1):
        try:
            device = connect()
            try:
                return push_bundle(device, handle, bundle_path, **options)
            finally:
                with suppress(EdgectlError):
                    device.close()
        except (ConnectionFailedError, BusyError) as error:
            # After a break, the device may need a moment to notice that we are gone.
            if attempt == attempts or (isinstance(error, BusyError) and attempt == 1):
                raise
            delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** min(attempt - 1, 10))
            notify(f"{error.message}; trying again ({attempt + 1} of {attempts})")
            time.sleep(delay_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
    raise ConnectionFailedError(f"no connection in {attempts} attempts")
