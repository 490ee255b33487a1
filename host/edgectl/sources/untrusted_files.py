"""Reads files that a hostile process may have left: plain files of a limited size, nothing else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["read_regular"]


def read_regular(path: Path, limit: int) -> bytes:
    """All bytes of a regular file.

    A link could name a file of the user's, and a pipe would never end, so neither is opened.

    Raises:
        OSError: it is not there, is no regular file, or is larger than ``limit``.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:  # noqa: PTH123  # the descriptor is what was checked
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path.name} is no regular file")
        if status.st_size > limit:
            raise OSError(f"{path.name} has {status.st_size} bytes; {limit} are allowed")
        return file.read(status.st_size)
