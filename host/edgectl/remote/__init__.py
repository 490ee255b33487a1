"""How the host reaches a device."""

from edgectl.remote.base import CommandResult, Device, Progress

__all__ = ["CommandResult", "Device", "Progress"]
