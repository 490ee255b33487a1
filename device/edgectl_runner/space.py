"""Is there room, on the disk and in memory, before the first byte travels."""

from __future__ import annotations

import os
from pathlib import Path

from edgectl_runner.failures import RunnerError

__all__ = ["check_memory", "check_space"]

RESERVE_BYTES = 32 << 20
RESERVE_SHARE = 0.05
RESERVE_INODES = 64
# Python, NumPy and the IREE runtime (measured: 33 MB), before any model.
BASE_MEMORY_BYTES = 33 << 20


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


def check_memory(module_bytes: int) -> None:
    """Refuses a model whose weights alone do not fit into the memory that is free.

    A lower bound on purpose: what the model computes in between is not known before it runs.

    Raises:
        RunnerError: exit code 7, with the numbers.
    """
    have = _memory_available_bytes()
    need = module_bytes + BASE_MEMORY_BYTES
    if have is not None and have < need:
        raise RunnerError(
            f"not enough memory on the device: need at least {need} bytes, have {have} bytes",
            cause="the model is too large for this board, or other programs use its memory",
            next_step="close other programs on the device, or use a smaller model (INT8)",
        )


def _memory_available_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
