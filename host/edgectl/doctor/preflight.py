"""Refuses a deployment that cannot work, before its first byte is sent."""

from __future__ import annotations

from dataclasses import replace

from edgectl.doctor.device import DEVICE_CHECKS
from edgectl.doctor.needs import Needs
from edgectl.doctor.result import Status
from edgectl.errors import DeviceError
from edgectl.remote.facts import DeviceFacts
from edgectl_toolchains import Target

__all__ = ["preflight"]


def preflight(
    facts: DeviceFacts,
    target: Target,
    *,
    needed_bytes: int,
    needed_inodes: int,
    needed_memory_bytes: int | None = None,
) -> None:
    """Runs every check of the device and reports all fatal problems at once.

    ``needed_memory_bytes`` is the model's peak, if somebody knows it.

    Raises:
        DeviceError: something that the deployment needs is missing.
    """
    needs = Needs(target=target, disk_bytes=needed_bytes, inodes=needed_inodes)
    if needed_memory_bytes is not None:
        needs = replace(needs, memory_bytes=needed_memory_bytes, memory_required=True)
    results = [check(facts, needs) for check in DEVICE_CHECKS]
    fatal = [result for result in results if result.status is Status.FAILED]
    if fatal:
        raise DeviceError(
            f"{facts.label} cannot run this model: "
            + "; ".join(f"{result.name}: {result.message}" for result in fatal),
            cause="nothing has been changed on the device",
            next_step="; ".join(dict.fromkeys(result.fix for result in fatal if result.fix)),
        )
