"""What is installed on a device, and the ways to change it that need no transfer."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgectl.remote.agent_calls import RunnerHandle, call_runner
from edgectl.remote.base import Device

__all__ = [
    "DeviceStatus",
    "GoneBack",
    "InstalledRelease",
    "Removal",
    "change_trust",
    "collect_garbage",
    "device_status",
    "history",
    "local_user",
    "pin_release",
    "rollback",
    "uninstall",
    "verify_release",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledRelease:
    """One release on a device; ``size_bytes`` of its files, some perhaps shared with others."""

    release: str
    name: str
    target: str
    precision: str
    sequence: int
    size_bytes: int
    pinned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStatus:
    """What counts on a device, what a rollback goes to, and who is at work."""

    runner_version: str
    root: str
    current: str | None
    previous: str | None
    on_probation: str | None
    locked_by: str | None
    disk_free_bytes: int | None
    releases: tuple[InstalledRelease, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What was removed, or would be."""

    removed: tuple[str, ...]
    freed_bytes: int
    dry_run: bool


def local_user() -> str:
    """``user@host`` of this computer, for the device's audit log."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def device_status(device: Device, handle: RunnerHandle) -> DeviceStatus:
    """Asks the device what is installed."""
    answer = call_runner(device, handle, "status", {})
    holder = answer.get("locked_by")
    return DeviceStatus(
        runner_version=str(answer["runner_version"]),
        root=str(answer["root"]),
        current=answer["current"],
        previous=answer["previous"],
        on_probation=answer.get("on_probation"),
        locked_by=None if holder is None else str(holder.get("who") or "somebody"),
        disk_free_bytes=answer.get("disk_free_bytes"),
        releases=tuple(
            InstalledRelease(**{name: entry[name] for name in InstalledRelease.__slots__})
            for entry in answer["releases"]
        ),
    )


def history(
    device: Device, handle: RunnerHandle, *, last: int = 100
) -> tuple[Mapping[str, Any], ...]:
    """The newest records of the device's audit log, oldest first."""
    return tuple(call_runner(device, handle, "history", {"last": last})["records"])


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneBack:
    """The release that is current after a rollback, and the one that was."""

    current: str
    before: str | None


def rollback(device: Device, handle: RunnerHandle, *, release: str | None = None) -> GoneBack:
    """Goes back to the previous release, or a named one.

    Raises:
        DeviceError: there is none, or its files are damaged.
    """
    request = {"who": local_user(), "release": release}
    answer = call_runner(device, handle, "rollback", request)
    return GoneBack(current=str(answer["current"]), before=answer["before"])


def verify_release(device: Device, handle: RunnerHandle, *, release: str | None = None) -> int:
    """Digests every file of a release (the current one by default); returns how many.

    Raises:
        DeviceError: one is missing or changed.
    """
    return int(call_runner(device, handle, "verify", {"release": release})["files"])


def pin_release(device: Device, handle: RunnerHandle, release: str, *, pinned: bool = True) -> None:
    """Keeps a release from being collected, or no longer does."""
    request = {"release": release, "pinned": pinned, "who": local_user()}
    call_runner(device, handle, "pin", request)


def collect_garbage(device: Device, handle: RunnerHandle, *, dry_run: bool = False) -> Removal:
    """Removes releases that are neither current, previous nor pinned, and what only they used.

    Old versions of the runner and of its packages that nothing uses go as well.
    """
    answer = call_runner(
        device, handle, "gc", {"who": local_user(), "dry_run": dry_run}, timeout_s=300.0
    )
    return _removal(answer)


def uninstall(
    device: Device, handle: RunnerHandle, *, release: str | None = None, dry_run: bool = False
) -> Removal:
    """Removes one release, or (without a name) everything of edgectl on the device."""
    request: dict[str, Any] = {"who": local_user(), "dry_run": dry_run}
    request |= {"everything": True} if release is None else {"release": release}
    return _removal(call_runner(device, handle, "uninstall", request, timeout_s=300.0))


def change_trust(
    device: Device,
    handle: RunnerHandle,
    *,
    add: bytes | None = None,
    remove: str | None = None,
    mode: str | None = None,
) -> Mapping[str, Any]:
    """Adds a public key, removes one by its id, or sets the mode (``first-use``, ``listed``).

    Without any of them it only tells: ``{"mode": ..., "keys": [{"key_id", "state"}]}``.
    """
    request = {
        "add": None if add is None else add.hex(),
        "remove": remove,
        "mode": mode,
        "who": local_user(),
    }
    return call_runner(device, handle, "trust", request)


def _removal(answer: Mapping[str, Any]) -> Removal:
    return Removal(
        removed=tuple(answer["removed"]),
        freed_bytes=int(answer["freed_bytes"]),
        dry_run=bool(answer.get("dry_run", False)),
    )
