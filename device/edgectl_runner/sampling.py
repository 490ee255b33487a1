"""The board at one moment, and this process's memory; cheap enough to ask around every run."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from edgectl_runner.contract import SystemSample

__all__ = ["is_emulated", "peak_rss_bytes", "sample"]

_PROCESSORS = Path("/sys/devices/system/cpu")
_THROTTLED = "/sys/devices/platform/soc/soc:firmware/get_throttled"


def sample() -> SystemSample:
    """Temperature, clock, throttling, governor, load and free memory, as far as the board tells."""
    temperature = _read("/sys/class/thermal/thermal_zone0/temp")
    throttled = _read(_THROTTLED)
    frequencies = (
        _number(_read(str(path)))
        for path in sorted(
            Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")
        )
    )
    celsius = _number(temperature)
    return SystemSample(
        temperature_celsius=celsius / 1000 if celsius is not None else None,
        cpu_frequency_mhz=tuple(f / 1000 for f in frequencies if f is not None),
        throttle_flags=int(throttled, 16) if throttled else None,
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        load_1min=_load(),
        memory_available_bytes=memory_available_bytes(),
    )


def memory_available_bytes() -> int | None:
    """What the kernel thinks it can hand out without swapping."""
    for line in (_read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def peak_rss_bytes() -> int:
    """The most memory this process has had in use (VmHWM)."""
    for line in (_read("/proc/self/status") or "").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def is_emulated() -> bool:
    """Whether this is a virtual Pi, whose latencies are not a Pi's."""
    return os.environ.get("EDGECTL_EMULATED", "") not in ("", "0")


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def _number(text: str | None) -> float | None:
    if text is not None:
        with contextlib.suppress(ValueError):
            return float(text)
    return None
