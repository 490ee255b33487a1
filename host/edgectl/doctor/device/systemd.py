"""Is systemd there? Only services need it."""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, ok, warning
from edgectl.remote.facts import DeviceFacts

__all__ = ["check"]

_NAME = "systemd"


def check(facts: DeviceFacts, _needs: Needs) -> CheckResult:
    """Deploying and running models works without."""
    if facts.systemd:
        return ok(_NAME, "device", "running")
    if facts.emulated:
        return ok(_NAME, "device", "not there (emulated)")
    return warning(
        _NAME,
        "device",
        "not running: models can be deployed and run, but not kept running as a service",
        fix="none needed unless you want a service",
    )
