"""Is the kernel of an architecture that models can be compiled for?"""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, failed, ok
from edgectl.remote.facts import DeviceFacts

__all__ = ["check"]

_NAME = "architecture"
_32_BIT = ("armv6l", "armv7l", "armv8l", "armhf", "i386", "i686")


def check(facts: DeviceFacts, needs: Needs) -> CheckResult:
    """64-bit Arm, or what the target says."""
    found = facts.kernel_architecture
    if found in _32_BIT:
        return failed(
            _NAME,
            "device",
            f"the operating system is 32-bit ({found}); there is no IREE runtime for it",
            fix="install the 64-bit Raspberry Pi OS (Pi 3 and later, Zero 2 W); older boards"
            " cannot run it",
        )
    wanted = needs.target.architecture if needs.target is not None else "aarch64"
    if found != wanted and not (needs.target is None and found == "x86_64"):
        return failed(
            _NAME,
            "device",
            f"the device is {found}, the model is for {wanted}",
            fix="compile for the device's own kind: edgectl compile --target ...",
        )
    return ok(_NAME, "device", found)
