"""Takes from this process what loading a model does not need: network, home, other processes,
unlimited memory, time and disk.

Called in the loading child before torch is imported (a user namespace wants a single thread).
What the system does not allow is left out and told (`Confinement.missing`), never silently.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from edgectl.sources import landlock

__all__ = ["Confinement", "Limits", "confine"]

_NEW_USER, _NEW_PID, _NEW_NET, _NEW_IPC = 0x10000000, 0x20000000, 0x40000000, 0x08000000
_NAMESPACES = _NEW_PID | _NEW_NET | _NEW_IPC
_PR_SET_PDEATHSIG = 1
_CAPABILITY_VERSION = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1 << 1, 1 << 2
_SYSTEM_READABLE = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/localtime",
    "/opt",
    "/nix/store",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/self",
    "/proc/sys/vm",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bytes and seconds that loading one model may use."""

    memory_bytes: int
    cpu_s: int
    file_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What could not be taken away, one line each; empty where everything could."""

    missing: tuple[str, ...]


def confine(*, readable: Sequence[Path], writable: Path, limits: Limits) -> Confinement:
    """Applies every measure this system has, in an order in which none blocks the next."""
    missing: list[str] = []
    namespaces = _without_network()
    if not namespaces:
        missing.append("the network could not be cut off (no new network namespace)")
    for what, value in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))
    if namespaces:
        _enter_process_namespace()
    try:
        abi = landlock.restrict(
            readable=[*map(Path, _SYSTEM_READABLE), *readable],
            writable=[writable, Path("/dev/null")],
        )
    except OSError:
        abi = 0
    _drop_capabilities()
    if abi == 0:
        missing.append("your files could be read and written (no Landlock in this kernel)")
    elif abi < 6:
        missing.append("your other processes could be sent signals (Landlock before Linux 6.12)")
    return Confinement(missing=tuple(missing))


def _drop_capabilities() -> None:
    """Leaves root only what it needs to read files of other users; nothing to lose for others."""
    libc = ctypes.CDLL(None, use_errno=True)
    kept = _DAC_OVERRIDE | _DAC_READ_SEARCH if os.geteuid() == 0 else 0
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    libc.capset(header, struct.pack("=6I", kept, kept, 0, 0, 0, 0))


def _enter_process_namespace() -> None:
    """Goes on as the second process of the new namespace.

    The first one only waits: when it ends, the kernel ends all that was started in there. (It
    cannot be the one that works, because a first process is deaf to ordinary signals.)
    """
    for _ in range(2):
        child = os.fork()
        if child != 0:
            _end_like(child)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_like(child: int) -> NoReturn:
    """Waits for the child and exits with its status, 128 + number for a signal."""
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _without_network() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0 and libc.unshare(_NAMESPACES) == 0:
        return True
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_USER | _NAMESPACES) != 0:
        return False
    try:
        # Without a map, everything seems to belong to nobody and some tools stumble over it.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError:
        pass
    return True
