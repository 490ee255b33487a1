"""One deployment at a time: a lock that the kernel frees when its holder dies.

The lock is ``flock`` on a file; what is written into the file only tells the others whom they
wait for, and is never trusted to decide anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from edgectl_runner.failures import BUSY, RunnerError

__all__ = ["busy_error", "exclusive_lock", "holder"]

WAIT_S = 1.0  # the host promises an answer within two seconds


@contextlib.contextmanager
def exclusive_lock(
    path: Path, *, who: str, verb: str, token: str | None = None, wait_s: float = WAIT_S
) -> Iterator[None]:
    """Holds the device's lock.

    Raises:
        RunnerError: exit code 75, naming the holder.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + wait_s
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise busy_error(holder(path) or {})
            time.sleep(0.05)
        note = json.dumps({"pid": os.getpid(), "who": who, "verb": verb, "token": token}).encode()
        # Only a note for others: a full disk must not keep anybody from cleaning up.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, note, 0)
        yield
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holder(path: Path) -> dict[str, object] | None:
    """The note of whoever holds the lock now, or ``None`` when it is free."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _try_lock(descriptor):
            return None
        note = json.loads(os.pread(descriptor, 4096, 0) or b"{}")
    except ValueError:
        return {}
    finally:
        os.close(descriptor)
    return note if isinstance(note, dict) else {}


def busy_error(note: dict[str, object]) -> RunnerError:
    """The error that names whoever wrote the note."""
    who = note.get("who") or "somebody else"
    verb, pid = note.get("verb", "unknown"), note.get("pid", "unknown")
    return RunnerError(
        f"another deployment to this device is under way: {who} ({verb}, process {pid})",
        code=BUSY,
        cause="deployments to one device take turns",
        next_step="try again when it has ended; a holder that died frees the device by itself",
    )
