"""Does the device know what time it is? Pis have no clock that runs without power."""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, ok, unknown, warning
from edgectl.remote.facts import DeviceFacts

__all__ = ["check"]

_NAME = "clock"
_TOLERATED_S = 120.0


def check(facts: DeviceFacts, _needs: Needs) -> CheckResult:
    """Nothing in edgectl decides by the device's clock; logs and records carry its time."""
    skew = facts.clock_skew_s
    fix = "on the device: sudo timedatectl set-ntp true (it needs a network with a time server)"
    if skew is None:
        return unknown(_NAME, "device", "the device does not tell its time", fix="date")
    if abs(skew) > _TOLERATED_S:
        direction = "ahead of" if skew > 0 else "behind"
        return warning(
            _NAME, "device", f"the clock is {_span(abs(skew))} {direction} this computer's", fix=fix
        )
    if facts.clock_synchronized is False and not facts.emulated:
        return warning(_NAME, "device", "the clock is right but not kept so by anybody", fix=fix)
    return ok(_NAME, "device", f"within {max(1.0, abs(skew)):.0f} s of this computer's")


def _span(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
