"""Can edgectl write where it keeps its files, and will they be there after a restart?"""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, failed, ok, unknown, warning
from edgectl.remote.facts import DeviceFacts

__all__ = ["check"]

_NAME = "edgectl's folder"


def check(facts: DeviceFacts, _needs: Needs) -> CheckResult:
    """A read-only or foreign folder is fatal; one that forgets (overlay, RAM) is worth knowing."""
    disk = facts.root_disk
    if disk is None:
        return unknown(
            _NAME,
            "device",
            f"nothing is known about the file system of {facts.root}",
            fix=f"check with: df {facts.root}",
        )
    if disk.read_only:
        return failed(
            _NAME,
            "device",
            f"the file system of {facts.root} is mounted read-only",
            fix="make it writable (sudo mount -o remount,rw /; or raspi-config, Performance,"
            " Overlay File System), or set EDGECTL_ROOT on the device to a folder that is",
        )
    if not disk.writable:
        return failed(
            _NAME,
            "device",
            f"{facts.user} may not write to {disk.path}, which {facts.root} belongs in",
            fix=f"on the device: sudo chown {facts.user} {disk.path}; or set EDGECTL_ROOT there",
        )
    if disk.forgets and not facts.emulated:
        return warning(
            _NAME,
            "device",
            f"{facts.root} is on {disk.filesystem}: what is deployed may be gone after a restart",
            fix="turn the overlay file system off (raspi-config), or set EDGECTL_ROOT to a folder"
            " on the SD card",
        )
    return ok(_NAME, "device", f"{facts.root} ({disk.filesystem or 'file system not told'})")
