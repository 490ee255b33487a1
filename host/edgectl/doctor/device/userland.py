"""Are programs on the device 64-bit, as its kernel is?"""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, failed, ok, unknown
from edgectl.remote.facts import DeviceFacts

__all__ = ["check"]

_NAME = "userland"


def check(facts: DeviceFacts, _needs: Needs) -> CheckResult:
    """32-bit programs on a 64-bit kernel: what Raspberry Pi OS (32-bit) does on newer boards."""
    if facts.userland_bits is None:
        return unknown(
            _NAME,
            "device",
            "the device does not tell whether its programs are 64-bit",
            fix="check with: getconf LONG_BIT",
        )
    if facts.userland_bits == 32 and facts.kernel_architecture in ("aarch64", "x86_64"):
        return failed(
            _NAME,
            "device",
            "the kernel is 64-bit but the programs are 32-bit; there is no IREE runtime for them",
            fix="install the 64-bit Raspberry Pi OS (the 32-bit one cannot be upgraded in place)",
        )
    return ok(_NAME, "device", f"{facts.userland_bits}-bit")
