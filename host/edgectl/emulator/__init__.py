"""A Pi that is not there: a real aarch64 Debian userland with its own SSH server, on loopback.

What runs there computes what a Pi computes, and never at a Pi's speed; everything that is
measured there is labelled as emulated.
"""

from edgectl.emulator.machine import (
    EmulatorInfo,
    connect_options,
    down,
    shell_command,
    status,
    up,
)

__all__ = ["EmulatorInfo", "connect_options", "down", "shell_command", "status", "up"]
