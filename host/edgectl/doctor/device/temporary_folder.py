"""Is the folder for temporary files usable? edgectl itself does not put packages there."""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, ok, unknown, warning
from edgectl.remote.facts import DeviceFacts

__all__ = ["check"]

_NAME = "temporary folder"
_SMALL_BYTES = 4 << 20


def check(facts: DeviceFacts, _needs: Needs) -> CheckResult:
    """Python's own helpers need a little; a full RAM disk breaks them in odd ways."""
    disk = facts.tmp_disk
    if disk is None:
        return unknown(_NAME, "device", "nothing is known about /tmp", fix="df /tmp")
    shown = f"{disk.free_bytes / 1e6:.1f} MB free at {disk.path}"
    if disk.free_bytes < _SMALL_BYTES or disk.read_only or not disk.writable:
        return warning(
            _NAME,
            "device",
            f"{disk.path} is full or cannot be written ({shown})",
            fix=f"on the device: empty {disk.path}, or restart it",
        )
    return ok(_NAME, "device", shown)
