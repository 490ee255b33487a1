"""Is the board cool enough to keep its speed?"""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, ok, unknown, warning
from edgectl.remote.facts import DeviceFacts

__all__ = ["check"]

_NAME = "temperature"
_WARM_CELSIUS = 75.0  # Pis begin to slow down at 80


def check(facts: DeviceFacts, _needs: Needs) -> CheckResult:
    """The first thermal zone, which is the processor's on every Pi."""
    celsius = facts.sample.temperature_celsius
    if celsius is None:
        if facts.emulated:
            return ok(_NAME, "device", "none (emulated)")
        return unknown(
            _NAME,
            "device",
            "the device does not tell its temperature",
            fix="cat /sys/class/thermal/thermal_zone0/temp",
        )
    if celsius >= _WARM_CELSIUS:
        return warning(
            _NAME,
            "device",
            f"{celsius:.0f} °C: it slows down at 80 °C",
            fix="let it cool down, or give it a heat sink or a fan",
        )
    return ok(_NAME, "device", f"{celsius:.0f} °C")
