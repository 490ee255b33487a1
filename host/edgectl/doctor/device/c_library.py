"""Is the C library the GNU one, and new enough for the runtime's wheels?"""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, failed, ok, unknown
from edgectl.remote.facts import DeviceFacts

__all__ = ["check"]

_NAME = "C library"
_OLDEST = (2, 28)
_FIX = "upgrade to Raspberry Pi OS 12 (bookworm) or later, 64-bit"


def check(facts: DeviceFacts, needs: Needs) -> CheckResult:
    """The wheels of the IREE runtime are manylinux_2_28 (or what the target says)."""
    if facts.libc == "musl":
        return failed(
            _NAME,
            "device",
            "the C library is musl (Alpine Linux); the IREE runtime needs the GNU C library",
            fix="use Raspberry Pi OS or Debian, 64-bit",
        )
    if facts.glibc is None:
        return unknown(
            _NAME,
            "device",
            "the device does not tell its C library's version",
            fix="check with: getconf GNU_LIBC_VERSION",
        )
    oldest = _OLDEST
    if needs.target is not None:
        major, minor = needs.target.glibc_min.split(".")[:2]
        oldest = max(oldest, (int(major), int(minor)))
    shown = ".".join(map(str, facts.glibc))
    if facts.glibc < oldest:
        return failed(
            _NAME,
            "device",
            f"glibc {shown} is too old; the IREE runtime needs {'.'.join(map(str, oldest))}",
            fix=_FIX,
        )
    return ok(_NAME, "device", f"glibc {shown}")
