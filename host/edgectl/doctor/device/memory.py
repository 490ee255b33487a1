"""Is enough memory free to load the runtime and a model?"""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, failed, ok, unknown, warning
from edgectl.remote.facts import DeviceFacts

__all__ = ["check"]

_NAME = "memory"


def check(facts: DeviceFacts, needs: Needs) -> CheckResult:
    """MemAvailable is the kernel's own estimate of what can be had without swapping."""
    available = facts.memory_available_bytes
    if available is None:
        return unknown(
            _NAME, "device", "the device does not tell how much memory is free", fix="free -m"
        )
    shown = f"{available >> 20} MiB available"
    if facts.memory_total_bytes is not None:
        shown += f" of {facts.memory_total_bytes >> 20}"
    if available < needs.memory_bytes:
        verdict = failed if needs.memory_required else warning
        return verdict(
            _NAME,
            "device",
            f"{shown}; {needs.memory_bytes >> 20} MiB are needed, so the model may be killed"
            " for want of memory",
            fix="stop other programs on the device, or add swap",
        )
    return ok(_NAME, "device", shown)
