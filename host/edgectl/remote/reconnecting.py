"""Work over a connection that keeps breaking: connect again, go on where it stopped."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from edgectl.errors import (
    AuthenticationError,
    BusyError,
    ConnectionFailedError,
    EdgectlError,
    HostKeyError,
)
from edgectl.remote.agent_calls import RunnerHandle
from edgectl.remote.base import Device, Progress
from edgectl.remote.push import PushReport, push_bundle

__all__ = ["Watch", "push_with_reconnects", "with_reconnects"]

ATTEMPTS = 12
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
PATIENCE_S = 180.0

Result = TypeVar("Result")


class Watch:
    """A progress callback that passes on, and knows how far it got and how long ago that was."""

    def __init__(self, progress: Progress | None = None):
        self._progress = progress
        self._since_s = time.monotonic()
        self.furthest = 0

    def __call__(self, done: int, total: int) -> None:
        if done > self.furthest:
            self.furthest = done
            self._since_s = time.monotonic()
        if self._progress is not None:
            self._progress(done, total)

    @property
    def silent_s(self) -> float:
        """Seconds since anything got further."""
        return time.monotonic() - self._since_s


def with_reconnects(
    device: Device | None,
    connect: Callable[[], Device],
    action: Callable[[Device], Result],
    *,
    attempts: int = ATTEMPTS,
    watch: Watch | None = None,
    patience_s: float = PATIENCE_S,
    notify: Callable[[str], None] = lambda _: None,
) -> tuple[Result, Device]:
    """``action(device)``, again over a fresh connection after each break.

    Args:
        device: an open connection to begin with; ``None`` opens one.
        connect: makes a connection; called once after each break.
        action: what is to be done; it must be able to go on where it stopped.
        attempts: connections in a row that bring nothing further.
        watch: the progress callback that ``action`` uses. With it, an attempt that got further
            starts the count of attempts again.
        patience_s: with a ``watch``: give up when nothing got further for so long.
        notify: told in a sentence about each break.

    Returns:
        what ``action`` gave, and the connection that is open then. Connections that broke are
        closed, the one it was given included.

    Raises:
        AuthenticationError, HostKeyError: at once, as another try gives the same answer, and many
            failed logins lock an account.
        ConnectionFailedError: the last attempt broke as well.
        EdgectlError: as from ``action``; nothing else is tried again.
    """
    watch = watch or Watch()
    attempt, broke = 0, False
    while True:
        attempt += 1
        furthest = watch.furthest
        try:
            device = device or connect()
            return action(device), device
        except (AuthenticationError, HostKeyError):
            raise
        except (ConnectionFailedError, BusyError) as error:
            # After a break, the device may need a moment to notice that we are gone.
            if isinstance(error, BusyError) and not broke:
                raise
            broke = True
            if device is not None:
                with suppress(EdgectlError):
                    device.close()
            device = None
            if watch.furthest > furthest:
                attempt = 1
            delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** min(attempt - 1, 10))
            impatient = watch.furthest > 0 and watch.silent_s + delay_s > patience_s
            if attempt >= attempts or impatient:
                raise _given_up(error, watch) from error
            notify(f"{error.message}; trying again ({attempt + 1} of {attempts})")
            time.sleep(delay_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret


def push_with_reconnects(
    connect: Callable[[], Device],
    handle: RunnerHandle,
    bundle_path: Path,
    *,
    attempts: int = ATTEMPTS,
    patience_s: float = PATIENCE_S,
    notify: Callable[[str], None] = lambda _: None,
    progress: Progress | None = None,
    **options: Any,
) -> PushReport:
    """`push_bundle` `with_reconnects`; each break costs what was in flight.

    ``options`` are those of `push_bundle`.
    """
    watch = Watch(progress)

    def push(device: Device) -> PushReport:
        return push_bundle(device, handle, bundle_path, progress=watch, **options)

    report, device = with_reconnects(
        None,
        connect,
        push,
        attempts=attempts,
        watch=watch,
        patience_s=patience_s,
        notify=notify,
    )
    with suppress(EdgectlError):
        device.close()
    return report


def _given_up(error: EdgectlError, watch: Watch) -> EdgectlError:
    if isinstance(error, BusyError) or not watch.furthest:
        return error
    return ConnectionFailedError(
        f"{error.message} (nothing got further for {watch.silent_s:.0f} s; "
        f"{watch.furthest} bytes had arrived and stay there)",
        cause=error.cause,
        next_step=error.next_step or "deploy again when the network works; it goes on from there",
    )
