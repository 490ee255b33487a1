"""Does the firmware hold the board back (weak power supply, heat)?"""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, ok, unknown, warning
from edgectl.remote.facts import DeviceFacts
from edgectl.remote.throttling import decode_throttling

__all__ = ["check"]

_NAME = "throttling"
_FIXES = {
    "under-voltage": "use the official power supply and a short, thick cable",
    "temperature limit": "give the board a heat sink or a fan",
    "throttled": "give the board a heat sink or a fan",
    "frequency capped": "check power supply and cooling",
}


def check(facts: DeviceFacts, _needs: Needs) -> CheckResult:
    """Only the firmware knows; without its answer the state is unknown, never ok."""
    status = decode_throttling(facts.sample.throttle_flags)
    if not status.known:
        if facts.emulated:
            return ok(_NAME, "device", "none (emulated)")
        return unknown(
            _NAME,
            "device",
            "unknown: the firmware cannot be asked, so a weak power supply would go unnoticed",
            fix="on a Raspberry Pi: sudo apt install raspi-utils (or libraspberrypi-bin), and let"
            " the user into the group video",
        )
    if not status.now and not status.since_boot:
        return ok(_NAME, "device", f"none ({facts.throttle_source})")
    causes = dict.fromkeys((*status.now, *status.since_boot))
    return warning(
        _NAME,
        "device",
        str(status),
        fix="; ".join(dict.fromkeys(_FIXES[cause] for cause in causes)),
    )
