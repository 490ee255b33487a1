"""Is there room, in bytes and in inodes, before the first byte travels."""

from __future__ import annotations

import os
from pathlib import Path

from edgectl_runner.failures import RunnerError

__all__ = ["check_space"]

RESERVE_BYTES = 32 << 20
RESERVE_SHARE = 0.05
RESERVE_INODES = 64


def check_space(root: Path, *, payload_bytes: int, files: int) -> None:
    """Refuses what would not fit beside a reserve for the rest of the system.

    The reserve is 5 % of the file system, but never more than 32 MiB: a full 16 GB card must
    still take a model.

    Raises:
        RunnerError: exit code 7, with the numbers.
    """
    if payload_bytes == 0:
        return
    state = os.statvfs(_existing(root))
    free = state.f_bavail * state.f_frsize
    reserve = min(RESERVE_BYTES, int(state.f_blocks * state.f_frsize * RESERVE_SHARE))
    need = payload_bytes + reserve
    if free < need:
        raise RunnerError(
            f"not enough space on the device: need {need} bytes, have {free} bytes "
            f"(in {root}, {reserve} bytes of it kept in reserve)",
            cause="the card is nearly full",
            next_step="remove old releases with 'edgectl gc', or free space on the device",
        )
    # Some file systems (btrfs, exFAT) have no fixed number of inodes and report 0.
    if state.f_files and state.f_favail < files + RESERVE_INODES:
        raise RunnerError(
            f"not enough inodes on the device: need {files + RESERVE_INODES}, "
            f"have {state.f_favail} (in {root})",
            cause="the file system holds very many small files",
            next_step="remove old releases with 'edgectl gc', or delete files on the device",
        )


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
