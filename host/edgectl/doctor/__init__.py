"""Finds what is wrong with this computer or a device, and says how to mend it.

    for result in run_checks(facts=gather_facts(device)):
        print(result.status, result.message, result.fix)

A check is one file in ``host/`` or ``device/`` and one line in the list there.
"""

from __future__ import annotations

from edgectl.doctor.device import DEVICE_CHECKS
from edgectl.doctor.host import HOST_CHECKS
from edgectl.doctor.needs import Needs
from edgectl.doctor.preflight import preflight
from edgectl.doctor.result import CheckResult, Status
from edgectl.remote.facts import DeviceFacts
from edgectl.settings import Settings, load_settings
from edgectl_toolchains import Target

__all__ = ["CheckResult", "Needs", "Status", "preflight", "run_checks"]


def run_checks(
    *,
    facts: DeviceFacts | None = None,
    target: Target | None = None,
    host: bool = True,
    settings: Settings | None = None,
) -> tuple[CheckResult, ...]:
    """The checks of this computer, then (with ``facts``) those of the device; changes nothing.

    ``target`` is what models are compiled for; without one, the core is not judged.
    """
    results: list[CheckResult] = []
    if host:
        known = settings or load_settings()
        results += [check(known) for check in HOST_CHECKS]
    if facts is not None:
        needs = Needs(target=target)
        results += [check(facts, needs) for check in DEVICE_CHECKS]
    return tuple(results)
