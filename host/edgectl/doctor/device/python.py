"""Is there a Python that the runtime has wheels for?"""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, failed, ok, warning
from edgectl.remote.facts import DeviceFacts
from edgectl.remote.wheelhouse import SUPPORTED_PYTHONS

__all__ = ["check"]

_NAME = "Python"


def check(facts: DeviceFacts, _needs: Needs) -> CheckResult:
    """``python3`` is what runs; others on the device are named as a way out."""
    oldest, newest = (".".join(map(str, p)) for p in (SUPPORTED_PYTHONS[0], SUPPORTED_PYTHONS[-1]))
    supported = f"{oldest} to {newest}"
    if not facts.pythons:
        return failed(
            _NAME,
            "device",
            "there is no Python 3 on the device",
            fix=f"on the device: sudo apt install python3 ({supported} are supported)",
        )
    usable = facts.usable_python(SUPPORTED_PYTHONS)
    default = facts.default_python
    shown = f"Python {default.version}" if default is not None else "no python3 on PATH"
    if usable is None:
        found = ", ".join(f"{p.version} ({p.path}, {p.abi}, {p.bits}-bit)" for p in facts.pythons)
        return failed(
            _NAME,
            "device",
            f"the IREE runtime has no wheel for the Python there: supported are {supported}"
            f" (64-bit CPython), found {found}",
            fix="upgrade the device to Raspberry Pi OS 12 (Python 3.11) or 13 (3.13), or install a"
            " supported Python beside",
        )
    if usable is not default:
        return warning(
            _NAME,
            "device",
            f"{shown} has no wheels; {usable.path} ({usable.version}) is used",
            fix=f"none needed; supported are {supported}",
        )
    return ok(_NAME, "device", shown)
