"""Checks of a device, from its facts alone: each file one check, the order is the list here."""

from __future__ import annotations

from collections.abc import Callable

from edgectl.doctor.device import (
    architecture,
    c_library,
    clock,
    core,
    disk,
    governor,
    inodes,
    memory,
    python,
    root_folder,
    systemd,
    temperature,
    temporary_folder,
    throttling,
    userland,
)
from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult
from edgectl.remote.facts import DeviceFacts

__all__ = ["DEVICE_CHECKS"]

DEVICE_CHECKS: tuple[Callable[[DeviceFacts, Needs], CheckResult], ...] = (
    architecture.check,
    userland.check,
    c_library.check,
    python.check,
    core.check,
    memory.check,
    root_folder.check,
    disk.check,
    inodes.check,
    temporary_folder.check,
    clock.check,
    governor.check,
    throttling.check,
    temperature.check,
    systemd.check,
)
