"""Checks of this computer: each file one check, the order is the list here."""

from __future__ import annotations

from collections.abc import Callable

from edgectl.doctor.host import disk, emulator_tools, packages, python_version
from edgectl.doctor.result import CheckResult
from edgectl.settings import Settings

__all__ = ["HOST_CHECKS"]

HOST_CHECKS: tuple[Callable[[Settings], CheckResult], ...] = (
    python_version.check,
    packages.check,
    disk.check,
    emulator_tools.check,
)
