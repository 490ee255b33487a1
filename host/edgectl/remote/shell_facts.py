"""The same facts from a POSIX shell, for devices whose Python is missing or too old."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["SHELL_SCRIPT", "document_from_shell"]

SHELL_SCRIPT = r"""
say() { printf '%s=%s\n' "$1" "$2"; }
first() { head -n 1 "$1" 2>/dev/null | tr -d '\0'; }
field() { sed -n "s/^$2[[:space:]]*:[[:space:]]*//p" "$1" 2>/dev/null | head -n 1; }
say edgectl_facts 1
say board_model "$(first /proc/device-tree/model)"
say cpu_implementer "$(field /proc/cpuinfo 'CPU implementer')"
say cpu_part "$(field /proc/cpuinfo 'CPU part')"
# Under an emulator of programs, /proc/cpuinfo is the outer machine's.
case $(uname -m) in x86_64 | i?86) flags=flags ;; *) flags=Features ;; esac
say cpu_features "$(field /proc/cpuinfo "$flags")"
say cpu_count "$(getconf _NPROCESSORS_ONLN 2>/dev/null || grep -c ^processor /proc/cpuinfo)"
say kernel "$(uname -r)"
say kernel_architecture "$(uname -m)"
say userland_bits "$(getconf LONG_BIT 2>/dev/null)"
say libc "$(getconf GNU_LIBC_VERSION 2>/dev/null)"
for file in /lib/ld-musl-*; do [ -e "$file" ] && say musl 1; done
say os_name "$(. /etc/os-release 2>/dev/null && printf %s "$PRETTY_NAME")"
say memory_total_kib "$(field /proc/meminfo MemTotal | tr -dc 0-9)"
say memory_available_kib "$(field /proc/meminfo MemAvailable | tr -dc 0-9)"
root=${EDGECTL_ROOT:-${XDG_DATA_HOME:-$HOME/.local/share}/edgectl}
say root "$root"
disk() {
    folder=$2
    while [ ! -d "$folder" ] && [ "$folder" != / ] && [ "$folder" != . ]; do
        folder=$(dirname "$folder")
    done
    say "$1_path" "$folder"
    say "$1_space" "$(df -Pk "$folder" 2>/dev/null | sed -n '2p' | tr -s ' ')"
    say "$1_inodes" "$(df -Pi "$folder" 2>/dev/null | sed -n '2p' | tr -s ' ')"
    say "$1_filesystem" "$(stat -f -c %T "$folder" 2>/dev/null)"
    if [ -w "$folder" ]; then say "$1_writable" 1; fi
}
disk root "$root"
disk tmp "${TMPDIR:-/tmp}"
say temperature "$(first /sys/class/thermal/thermal_zone0/temp)"
say governor "$(first /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor)"
say load "$(first /proc/loadavg)"
say throttled "$(vcgencmd get_throttled 2>/dev/null)"
say throttled_sysfs "$(first /sys/devices/platform/soc/soc:firmware/get_throttled)"
say time "$(date +%s)"
say synchronized "$(timedatectl show -p NTPSynchronized --value 2>/dev/null)"
if [ -d /run/systemd/system ]; then say systemd 1; fi
say user "$(id -un 2>/dev/null || id -u)"
say emulated "$EDGECTL_EMULATED"
say python_default "$(command -v python3)"
IFS=:
for folder in $PATH; do
    for file in "$folder"/python3 "$folder"/python3.[0-9] "$folder"/python3.[0-9][0-9]; do
        [ -x "$file" ] && say python "$file $("$file" --version 2>&1)"
    done
done
exit 0
"""


def document_from_shell(text: str) -> dict[str, Any] | None:
    """Turns the script's ``name=value`` lines into the document of `DeviceFacts`."""
    values: dict[str, str] = {}
    pythons: list[str] = []
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if not separator:
            continue
        if name == "python":
            pythons.append(value)
        else:
            values[name] = value.strip()
    if "edgectl_facts" not in values or not values.get("kernel_architecture"):
        return None
    libc, _, libc_version = values.get("libc", "").partition(" ")
    flags, source = _throttling(values)
    celsius = _float(values.get("temperature"))
    return {
        "board_model": values.get("board_model") or None,
        "cpu_implementer": values.get("cpu_implementer") or None,
        "cpu_part": values.get("cpu_part") or None,
        "cpu_count": _int(values.get("cpu_count")) or 1,
        "cpu_features": values.get("cpu_features", "").split(),
        "kernel": values.get("kernel", ""),
        "kernel_architecture": values["kernel_architecture"],
        "userland_bits": _int(values.get("userland_bits")),
        "libc": libc or ("musl" if "musl" in values else None),
        "libc_version": libc_version or None,
        "os_name": values.get("os_name") or None,
        "pythons": _pythons(pythons, values),
        "memory_total_bytes": _scaled(values.get("memory_total_kib")),
        "memory_available_bytes": _scaled(values.get("memory_available_kib")),
        "root": values.get("root", ""),
        "root_disk": _disk(values, "root"),
        "tmp_disk": _disk(values, "tmp"),
        "sample": {
            "temperature_celsius": None if celsius is None else celsius / 1000,
            "cpu_frequency_mhz": [],
            "throttle_flags": flags,
            "governor": values.get("governor") or None,
            "load_1min": _float(values.get("load", "").partition(" ")[0]),
            "memory_available_bytes": _scaled(values.get("memory_available_kib")),
        },
        "throttle_source": source,
        "device_time_s": _float(values.get("time")),
        "clock_synchronized": {"yes": True, "no": False}.get(values.get("synchronized", "")),
        "systemd": "systemd" in values,
        "user": values.get("user", ""),
        "emulated": values.get("emulated", "") not in ("", "0"),
        "method": "sh",
    }


def _pythons(lines: list[str], values: dict[str, str]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        match = re.fullmatch(r"(\S+) Python (\d+\.\d+\.\S+)", line.strip())
        if match is not None:
            found.setdefault(
                match[1],
                {
                    "path": match[1],
                    "version": match[2],
                    "implementation": "cpython",
                    "bits": _int(values.get("userland_bits")) or 0,
                    "default": match[1] == values.get("python_default"),
                },
            )
    return list(found.values())


def _disk(values: dict[str, str], name: str) -> dict[str, Any] | None:
    space = values.get(f"{name}_space", "").split()
    inodes = values.get(f"{name}_inodes", "").split()
    total, free = (_scaled(space[1]), _scaled(space[3])) if len(space) >= 4 else (None, None)
    if total is None or free is None:
        return None
    counted = len(inodes) >= 4 and (_int(inodes[1]) or 0) > 0
    writable = f"{name}_writable" in values
    return {
        "path": values.get(f"{name}_path", ""),
        "filesystem": values.get(f"{name}_filesystem") or None,
        "free_bytes": free,
        "total_bytes": total,
        "free_inodes": _int(inodes[3]) if counted else None,
        # A shell asks access(2), which says no on a read-only disk whoever asks.
        "read_only": not writable and values.get("user") == "root",
        "writable": writable,
    }


def _throttling(values: dict[str, str]) -> tuple[int | None, str | None]:
    match = re.search(r"throttled=0x([0-9a-fA-F]+)", values.get("throttled", ""))
    if match is not None:
        return int(match[1], 16), "vcgencmd"
    match = re.fullmatch(r"(?:0x)?([0-9a-fA-F]+)", values.get("throttled_sysfs", ""))
    flags = int(match[1], 16) if match is not None else 0
    # See edgectl_runner.system_facts: a 0 from there says nothing.
    return (flags, "sysfs") if flags else (None, None)


def _int(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _scaled(text: str | None) -> int | None:
    kibibytes = _int(text)
    return None if kibibytes is None else kibibytes * 1024


def _float(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
