"""What this process knows about itself: its peak memory, and whether it runs on a virtual Pi."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

__all__ = ["is_emulated", "peak_rss_bytes", "runtime_version"]


def peak_rss_bytes() -> int:
    """The most memory this process has had in use (VmHWM)."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        status = ""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def is_emulated() -> bool:
    """Whether this is a virtual Pi, whose latencies are not a Pi's."""
    return os.environ.get("EDGECTL_EMULATED", "") not in ("", "0")


def runtime_version() -> str | None:
    """Version of the IREE runtime that would be imported, told without importing it."""
    for entry in sys.path:
        for path in Path(entry or ".").glob("iree_base_runtime-*.dist-info"):
            return path.name.removeprefix("iree_base_runtime-").removesuffix(".dist-info")
    return None
