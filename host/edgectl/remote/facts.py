"""What a device is, before anything is changed on it.

    facts = gather_facts(device)
    facts.best_python()

A script (`edgectl_runner.system_facts`) is piped into the device's own Python; where there is
none, a POSIX shell script tells as much as it can.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from edgectl.errors import DeviceError
from edgectl.remote.base import CommandResult, Device
from edgectl.remote.shell_facts import SHELL_SCRIPT, document_from_shell
from edgectl_runner.contract import ContractError, SystemSample, from_document

__all__ = ["DeviceFacts", "DiskFacts", "PythonFacts", "gather_facts"]

_TIMEOUT_S = 120.0  # a dozen interpreters to ask, each taking seconds under emulation

CORE_NAMES = {
    ("0x41", "0xb76"): "ARM1176",
    ("0x41", "0xc07"): "Cortex-A7",
    ("0x41", "0xd03"): "Cortex-A53",
    ("0x41", "0xd04"): "Cortex-A35",
    ("0x41", "0xd05"): "Cortex-A55",
    ("0x41", "0xd07"): "Cortex-A57",
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
}
"""(implementer, part) of /proc/cpuinfo, as far as they occur on small boards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFacts:
    """One interpreter of the device; ``default`` is what ``python3`` starts."""

    path: str
    version: str
    implementation: str
    bits: int
    free_threaded: bool = False
    default: bool = False

    @property
    def minor(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    @property
    def abi(self) -> str:
        """For example ``cp311`` or ``cp313t``, as in the names of wheels."""
        if self.implementation != "cpython":
            return self.implementation
        major, minor = self.minor
        return f"cp{major}{minor}{'t' if self.free_threaded else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """The file system that a path is on; ``free_inodes`` is ``None`` where they are not counted."""

    path: str
    filesystem: str | None
    free_bytes: int
    total_bytes: int
    free_inodes: int | None
    read_only: bool
    writable: bool

    @property
    def forgets(self) -> bool:
        """Whether what is written may be gone after a restart (RAM disk, overlay)."""
        return self.filesystem in ("overlay", "overlayfs", "aufs", "tmpfs", "ramfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """A device as it describes itself; ``None`` is what it does not tell.

    ``clock_skew_s`` is the device's clock minus this computer's. ``sample.throttle_flags`` is
    ``None`` when nobody on the device knows, which is not the same as 0. ``root`` is edgectl's
    folder there. ``method`` tells which script was run (``python`` or ``sh``).
    """

    board_model: str | None
    cpu_implementer: str | None
    cpu_part: str | None
    cpu_count: int
    cpu_features: tuple[str, ...]
    kernel: str
    kernel_architecture: str
    userland_bits: int | None
    libc: str | None
    libc_version: str | None
    os_name: str | None
    pythons: tuple[PythonFacts, ...]
    memory_total_bytes: int | None
    memory_available_bytes: int | None
    root: str
    root_disk: DiskFacts | None
    tmp_disk: DiskFacts | None
    sample: SystemSample
    throttle_source: str | None
    device_time_s: float | None
    clock_synchronized: bool | None
    systemd: bool
    user: str
    emulated: bool
    method: str
    label: str = ""
    clock_skew_s: float | None = None

    @property
    def core(self) -> str | None:
        """The core's name, or its part number when edgectl has no name for it."""
        if self.cpu_part is None:
            return None
        return CORE_NAMES.get((self.cpu_implementer or "", self.cpu_part), f"part {self.cpu_part}")

    @property
    def glibc(self) -> tuple[int, int] | None:
        """Version of the GNU C library, ``None`` with another or an unknown one."""
        if self.libc != "glibc" or not self.libc_version:
            return None
        try:
            major, minor = self.libc_version.split(".")[:2]
            return int(major), int(minor)
        except ValueError:
            return None

    @property
    def default_python(self) -> PythonFacts | None:
        """What ``python3`` starts."""
        return next((python for python in self.pythons if python.default), None)

    def usable_python(self, supported: Collection[tuple[int, int]]) -> PythonFacts | None:
        """The default Python if it will do, else the newest that will (64-bit CPython)."""

        def fits(python: PythonFacts) -> bool:
            return (
                python.implementation == "cpython"
                and python.bits == 64
                and not python.free_threaded
                and python.minor in supported
            )

        if self.default_python is not None and fits(self.default_python):
            return self.default_python
        return max(filter(fits, self.pythons), key=lambda p: p.minor, default=None)


def gather_facts(device: Device) -> DeviceFacts:
    """Asks the device; changes nothing there.

    Raises:
        DeviceError: neither script gave an answer that can be read.
        ConnectionFailedError: the connection broke.
    """
    script = (files("edgectl_runner") / "system_facts.py").read_bytes()
    document, host_time_s = _ask(device, ["python3", "-"], script)
    if document is None:
        answer = device.run(["sh", "-s"], stdin=SHELL_SCRIPT.encode("ascii"), timeout_s=_TIMEOUT_S)
        host_time_s = time.time()
        document = document_from_shell(answer.stdout.decode("utf-8", "replace"))
        if document is None:
            raise _unreadable(device, answer)
    try:
        facts = from_document(DeviceFacts, document)
    except ContractError as error:
        raise DeviceError(
            f"{device.label} describes itself in a way that edgectl cannot read: {error}"
        ) from error
    told = facts.device_time_s
    return replace(
        facts,
        label=device.label,
        emulated=facts.emulated or device.emulated,
        clock_skew_s=None if told is None else told - host_time_s,
    )


def _ask(device: Device, argv: list[str], script: bytes) -> tuple[dict[str, Any] | None, float]:
    """The document, if that interpreter is there and new enough, and when it came."""
    answer = device.run(argv, stdin=script, timeout_s=_TIMEOUT_S)
    host_time_s = time.time()
    if answer.exit_code != 0:
        return None, host_time_s
    try:
        # Profiles that print something would come before; the document is the last line.
        document = json.loads(answer.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None, host_time_s
    return (document if isinstance(document, dict) else None), host_time_s


def _unreadable(device: Device, answer: CommandResult) -> DeviceError:
    said = (answer.stderr or answer.stdout).decode("utf-8", "replace").strip()[-300:]
    return DeviceError(
        f"{device.label} does not run commands as a Linux machine does"
        f" (exit code {answer.exit_code})",
        cause=f"its answer was: {said}" if said else "its answer was empty",
        next_step="check with: ssh DEVICE uname -a",
    )
