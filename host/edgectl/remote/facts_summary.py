"""Device facts as lines for people; ``edgectl device facts`` prints them."""

from __future__ import annotations

from edgectl.remote.facts import DeviceFacts, DiskFacts
from edgectl.remote.throttling import decode_throttling

__all__ = ["summarize"]

_UNKNOWN = "not told"


def summarize(facts: DeviceFacts) -> tuple[tuple[str, str], ...]:
    """Name and value, in the order in which one wants to read them."""
    sample = facts.sample
    frequencies = sorted({f"{mhz:.0f}" for mhz in sample.cpu_frequency_mhz}, key=int)
    return (
        ("device", facts.label + (" (emulated)" if facts.emulated else "")),
        ("board", facts.board_model or _UNKNOWN),
        ("system", f"{facts.os_name or _UNKNOWN}, kernel {facts.kernel}"),
        ("kernel", facts.kernel_architecture),
        ("programs", f"{facts.userland_bits}-bit" if facts.userland_bits else _UNKNOWN),
        ("C library", f"{facts.libc or _UNKNOWN} {facts.libc_version or ''}".strip()),
        ("core", f"{facts.cpu_count} x {facts.core or _UNKNOWN}"),
        ("features", " ".join(facts.cpu_features) or _UNKNOWN),
        ("Python", _pythons(facts)),
        ("memory", _memory(facts)),
        ("edgectl's folder", facts.root),
        ("disk", _disk(facts.root_disk)),
        ("temporary files", _disk(facts.tmp_disk)),
        ("governor", sample.governor or _UNKNOWN),
        ("frequency", f"{', '.join(frequencies)} MHz" if frequencies else _UNKNOWN),
        (
            "temperature",
            _UNKNOWN
            if sample.temperature_celsius is None
            else f"{sample.temperature_celsius:.1f} °C",
        ),
        ("throttling", str(decode_throttling(sample.throttle_flags))),
        ("clock", _clock(facts)),
        ("systemd", "running" if facts.systemd else "not running"),
        ("user", facts.user),
    )


def _pythons(facts: DeviceFacts) -> str:
    shown = [
        f"{python.version} ({python.path}, {python.abi}"
        f"{', default' if python.default else ''}"
        f"{', 32-bit' if python.bits == 32 else ''})"
        for python in facts.pythons
    ]
    return ", ".join(shown) or "none"


def _memory(facts: DeviceFacts) -> str:
    if facts.memory_total_bytes is None:
        return _UNKNOWN
    shown = f"{facts.memory_total_bytes >> 20} MiB"
    if facts.memory_available_bytes is not None:
        shown += f", {facts.memory_available_bytes >> 20} MiB available"
    return shown


def _disk(disk: DiskFacts | None) -> str:
    if disk is None:
        return _UNKNOWN
    inodes = "" if disk.free_inodes is None else f", {disk.free_inodes} inodes free"
    marks = [disk.filesystem or "file system not told"]
    marks += ["read-only"] if disk.read_only else []
    marks += ["not writable"] if not disk.writable and not disk.read_only else []
    return (
        f"{disk.free_bytes / 1e9:.2f} of {disk.total_bytes / 1e9:.2f} GB free at {disk.path}"
        f" ({', '.join(marks)}){inodes}"
    )


def _clock(facts: DeviceFacts) -> str:
    if facts.clock_skew_s is None:
        return _UNKNOWN
    kept = {True: "synchronized", False: "not synchronized", None: "synchronization not told"}
    return f"{facts.clock_skew_s:+.1f} s from this computer's, {kept[facts.clock_synchronized]}"
