"""Is enough of the disk free?"""

from __future__ import annotations

from edgectl.doctor.needs import RESERVE_BYTES, Needs
from edgectl.doctor.result import CheckResult, failed, ok, unknown
from edgectl.remote.facts import DeviceFacts

__all__ = ["check"]

_NAME = "disk"


def check(facts: DeviceFacts, needs: Needs) -> CheckResult:
    """Free for the user who logs in, which is less than free for root."""
    disk = facts.root_disk
    if disk is None:
        return unknown(
            _NAME, "device", "the device does not tell how full its disk is", fix="df -h"
        )
    wanted = needs.disk_bytes + RESERVE_BYTES
    shown = f"{disk.free_bytes / 1e6:.1f} MB free at {disk.path}"
    if disk.free_bytes < wanted:
        return failed(
            _NAME,
            "device",
            f"{shown}; {wanted / 1e6:.1f} MB are needed",
            fix="free some space on the device (sudo apt clean; df -h), or set EDGECTL_ROOT to"
            " another disk",
        )
    return ok(_NAME, "device", shown)
