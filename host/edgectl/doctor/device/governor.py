"""Does the governor let the core run at its speed?"""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, ok, unknown, warning
from edgectl.remote.facts import DeviceFacts

__all__ = ["check"]

_NAME = "governor"


def check(facts: DeviceFacts, _needs: Needs) -> CheckResult:
    """edgectl reports the governor and never changes it."""
    governor = facts.sample.governor
    if governor is None:
        if facts.emulated:
            return ok(_NAME, "device", "none (emulated)")
        return unknown(
            _NAME,
            "device",
            "the device does not tell its frequency governor",
            fix="ls /sys/devices/system/cpu/cpu0/cpufreq",
        )
    if governor == "performance":
        return ok(_NAME, "device", governor)
    slow = governor == "powersave"
    return warning(
        _NAME,
        "device",
        f"the governor is {governor}: "
        + (
            "the core stays at its lowest frequency"
            if slow
            else "the first runs of a benchmark are slower than the rest"
        ),
        fix="for measurements, on the device: echo performance | sudo tee"
        " /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    )
