"""A whole virtual Pi: Debian 12 for arm64 with its own kernel, systemd, sshd and card.

Slower to start than the usual one (which shares this computer's kernel), and good for what that
one cannot show: power cuts, full and read-only cards, wrong clocks, lost networks, services.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgectl.emulator.full.faults import FAULTS, Fault
from edgectl.emulator.full.image import ensure_image
from edgectl.emulator.full.machine import Machine, MachineSpec, find, start
from edgectl.settings import Settings
from edgectl_toolchains import Target

__all__ = ["FAULTS", "Fault", "Machine", "MachineSpec", "find", "machine_folder", "start", "up"]


def machine_folder(settings: Settings) -> Path:
    """Where this user's machine lies; its keys are in the folder above."""
    return settings.state_dir / "emulator" / "full"


def up(
    target: Target,
    *,
    settings: Settings,
    memory_mb: int | None = None,
    snapshot: str | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Machine:
    """Starts the machine as that board; one that already runs is kept if it is that board.

    Raises:
        UsageError: no such memory or snapshot.
        DeviceError: it cannot be built or does not start.
    """
    spec = MachineSpec.of(target, memory_mb=memory_mb)
    folder = machine_folder(settings)
    running = find(folder)
    if running is not None:
        if running.spec == spec and snapshot is None:
            return running
        running.shut_down()
    folder.mkdir(parents=True, exist_ok=True)
    folder.parent.chmod(0o700)
    image = ensure_image(settings.cache_dir, on_step=on_step)
    if on_step is not None:
        on_step("boot the virtual machine" if snapshot is None else f"go on from {snapshot}")
    return start(folder, image, spec, snapshot=snapshot)
