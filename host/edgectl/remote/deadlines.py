"""Deadlines for calls that have none of their own.

paramiko waits without limit in `exec_command`, `invoke_subsystem` and a few others; closing the
channel (or the transport) from another thread is what wakes them, and what `closed_after` does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Deadline", "Expiry", "closed_after", "closed_when_over"]


_LOOK_S = 0.25


@dataclass(slots=True)
class Deadline:
    """A moment on the monotonic clock; wall-clock jumps do not move it."""

    seconds: float
    _end: float = field(init=False)

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds

    def remaining_s(self, *, at_most: float | None = None) -> float:
        """Seconds left, never negative; ``at_most`` caps them."""
        left = max(0.0, self._end - time.monotonic())
        return left if at_most is None else min(left, at_most)

    @property
    def expired(self) -> bool:
        """Whether the moment has passed."""
        return time.monotonic() >= self._end

    def extend(self) -> None:
        """Starts over: for transfers, which may take long but may not stand still."""
        self._end = time.monotonic() + self.seconds


@dataclass(slots=True)
class Expiry:
    """Tells afterwards whether the time ran out."""

    expired: bool = False


@contextmanager
def closed_after(seconds: float, close: Callable[[], object]) -> Iterator[Expiry]:
    """Calls ``close`` from another thread when the block takes longer than ``seconds``."""
    expiry = Expiry()

    def expire() -> None:
        expiry.expired = True
        close()

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield expiry
    finally:
        timer.cancel()


@contextmanager
def closed_when_over(deadline: Deadline, close: Callable[[], object]) -> Iterator[Expiry]:
    """Like `closed_after` with a deadline that the block may extend while it makes progress."""
    expiry = Expiry()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(deadline.remaining_s(at_most=_LOOK_S)):
            if deadline.expired:
                expiry.expired = True
                close()
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield expiry
    finally:
        done.set()
