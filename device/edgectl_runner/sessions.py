"""A deployment holds the device from its first to its last step, over several commands.

The ``hold`` command keeps a kernel lock for as long as the host's connection lives; the host runs
it beside the others, which carry its token. When the host dies, its connection closes, `hold`
sees its standard output gone and ends, and the kernel frees the lock.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from edgectl_runner.failures import USAGE, RunnerError
from edgectl_runner.locking import busy_error, exclusive_lock, holder

__all__ = ["check_session", "check_token", "hold_session", "release_session"]

MAX_HOLD_S = 6 * 3600.0
_TOKEN = re.compile(r"[0-9a-f]{16,64}\Z")


def check_token(token: object) -> str | None:
    """The token of a request, if it carries one.

    Raises:
        RunnerError: exit code 2, it is not one.
    """
    if token is None:
        return None
    if not isinstance(token, str) or not _TOKEN.match(token):
        raise RunnerError("the session token is not one", code=USAGE)
    return token


def hold_session(path: Path, *, who: str, token: str) -> float:
    """Holds the device until told to stop or until nobody listens; returns the seconds held.

    Says ``held`` on standard error once it does.

    Raises:
        RunnerError: exit code 75, somebody else holds it.
    """
    stopped = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    start = time.monotonic()
    with exclusive_lock(path, who=who, verb="deploy", token=token):
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGHUP, stop)
        sys.stderr.write("held\n")
        sys.stderr.flush()
        poller = select.poll()
        poller.register(1, 0)  # only errors and hang-ups
        while not stopped and time.monotonic() - start < MAX_HOLD_S:
            if poller.poll(200):
                break
    return time.monotonic() - start


def check_session(path: Path, token: str | None) -> None:
    """Refuses when another deployment holds the device.

    Raises:
        RunnerError: exit code 75, naming it.
    """
    note = holder(path)
    if note is not None and note.get("token") != token:
        raise busy_error(note)


def release_session(path: Path, token: str) -> None:
    """Ends the `hold` command of that token, if it still runs."""
    note = holder(path)
    if note is None or note.get("token") != token:
        return
    pid = note.get("pid")
    if isinstance(pid, int) and pid > 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
