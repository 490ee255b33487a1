"""Are enough inodes free? A disk of many small files runs out of them first."""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, failed, ok, unknown
from edgectl.remote.facts import DeviceFacts

__all__ = ["check"]

_NAME = "inodes"


def check(facts: DeviceFacts, needs: Needs) -> CheckResult:
    """File systems without a fixed number of inodes have enough."""
    disk = facts.root_disk
    if disk is None:
        return unknown(_NAME, "device", "the device does not tell its free inodes", fix="df -i")
    if disk.free_inodes is None:
        return ok(_NAME, "device", "not limited by this file system")
    shown = f"{disk.free_inodes} free at {disk.path}"
    if disk.free_inodes < needs.inodes:
        return failed(
            _NAME,
            "device",
            f"{shown}; {needs.inodes} are needed",
            fix="delete folders of many small files on the device: df -i shows where",
        )
    return ok(_NAME, "device", shown)
