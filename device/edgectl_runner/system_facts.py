"""What kind of machine this is: board, core, userland, Pythons, disks, clock, throttling.

This file is also sent to devices that have nothing of edgectl yet and run there as
``python3 -``. So it imports the standard library only, nothing of its own package, and is
written for Python 3.7 and later. It prints one JSON document and changes nothing.
"""

from __future__ import annotations

import ctypes
import getpass
import json
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

__all__ = ["collect", "sample"]

_HWCAP_NAMES = (
    *("fp", "asimd", "evtstrm", "aes", "pmull", "sha1", "sha2", "crc32", "atomics", "fphp"),
    *("asimdhp", "cpuid", "asimdrdm", "jscvt", "fcma", "lrcpc", "dcpop", "sha3", "sm3", "sm4"),
    *("asimddp", "sha512", "sve", "asimdfhm", "dit", "uscat", "ilrcpc", "flagm", "ssbs", "sb"),
)
"""Bits of AT_HWCAP on aarch64, in order (Linux, arch/arm64/include/uapi/asm/hwcap.h)."""
_HWCAP2_NAMES = {1: "sve2", 13: "i8mm", 14: "bf16"}
_AT_HWCAP, _AT_HWCAP2 = 16, 26

# The same as `_describe_this_python`, for another interpreter.
_PROBE = (
    "import json,platform,struct,sys,sysconfig;"
    "print(json.dumps([platform.python_version(),sys.implementation.name,struct.calcsize('P')*8,"
    "bool(sysconfig.get_config_var('Py_GIL_DISABLED'))]))"
)
_PYTHON_NAME = re.compile(r"python3(\.\d+t?)?$")
_MAX_PYTHONS = 12


def collect(root: str = "/") -> dict[str, object]:
    """Everything, as a document; ``None`` stands for what the machine does not tell.

    ``root`` is put before every path of ``/proc`` and ``/sys`` (for tests).
    """
    uname = os.uname()
    cpu = _cpu(root, uname.machine)
    libc, libc_version = _libc()
    edgectl_root = default_root()
    memory = _memory(root)
    return {
        "board_model": _board_model(root),
        "cpu_implementer": cpu["implementer"],
        "cpu_part": cpu["part"],
        "cpu_count": os.cpu_count() or 1,
        "cpu_features": cpu["features"],
        "kernel": uname.release,
        "kernel_architecture": uname.machine,
        "userland_bits": struct.calcsize("P") * 8,
        "libc": libc,
        "libc_version": libc_version,
        "os_name": _os_name(root),
        "pythons": _pythons(),
        "memory_total_bytes": memory.get("MemTotal"),
        "memory_available_bytes": memory.get("MemAvailable"),
        "root": edgectl_root,
        "root_disk": _disk(edgectl_root, root),
        "tmp_disk": _disk(os.environ.get("TMPDIR") or "/tmp", root),  # noqa: S108 - it is looked at, not written to
        "sample": sample(root),
        "throttle_source": _throttling(root)[1],
        "device_time_s": time.time(),
        "clock_synchronized": _clock_synchronized(),
        "systemd": Path(root, "run/systemd/system").is_dir(),
        "user": _user(),
        "emulated": os.environ.get("EDGECTL_EMULATED", "") not in ("", "0"),
        "method": "python",
    }


def sample(root: str = "/") -> dict[str, object]:
    """The fields of `edgectl_runner.contract.SystemSample` at this moment."""
    celsius = _number(_read(root, "sys/class/thermal/thermal_zone0/temp"))
    processors = Path(root, "sys/devices/system/cpu")
    frequencies = [
        _number(_read(root, str(path.relative_to(root))))
        for path in sorted(processors.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
    ]
    try:
        load = os.getloadavg()[0]
    except OSError:
        load = None
    return {
        "temperature_celsius": None if celsius is None else celsius / 1000.0,
        "cpu_frequency_mhz": [kilohertz / 1000.0 for kilohertz in frequencies if kilohertz],
        "throttle_flags": _throttling(root)[0],
        "governor": _read(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "load_1min": load,
        "memory_available_bytes": _memory(root).get("MemAvailable"),
    }


def default_root() -> str:
    """The folder that holds everything of edgectl on this device."""
    given = os.environ.get("EDGECTL_ROOT")
    if given:
        return given
    data = os.environ.get("XDG_DATA_HOME") or str(Path("~/.local/share").expanduser())
    return str(Path(data, "edgectl"))


def _read(root: str, path: str) -> str | None:
    try:
        return Path(root, path).read_text(encoding="utf-8", errors="replace").strip().strip("\0")
    except OSError:
        return None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _output(command: list[str], timeout_s: float = 10.0) -> str | None:
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.decode("utf-8", "replace") if result.returncode == 0 else None


def _board_model(root: str) -> str | None:
    for path in ("proc/device-tree/model", "sys/firmware/devicetree/base/model"):
        model = _read(root, path)
        if model:
            return model
    # Where the device tree is hidden (in a container), Raspberry Pi OS's kernel says it here too.
    for line in (_read(root, "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "Model":
            return value.strip() or None
    return None


def _os_name(root: str) -> str | None:
    for line in (_read(root, "etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip("\"'")
    return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _cpu(root: str, machine: str) -> dict[str, object]:
    fields: dict[str, str] = {}
    for line in (_read(root, "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    features = (fields.get("Features") or fields.get("flags") or "").split()
    if machine == "aarch64":
        # Under an emulator of programs, /proc/cpuinfo is the outer machine's; this is not.
        features = _hwcap_features(root) or features
    return {
        "implementer": fields.get("CPU implementer"),
        "part": fields.get("CPU part"),
        "features": features,
    }


def _hwcap_features(root: str) -> list[str]:
    if struct.calcsize("P") != 8:
        return []
    try:
        vector = Path(root, "proc/self/auxv").read_bytes()
    except OSError:
        return []
    entries = dict(struct.iter_unpack("<QQ", vector[: len(vector) // 16 * 16]))
    first, second = entries.get(_AT_HWCAP, 0), entries.get(_AT_HWCAP2, 0)
    names = [name for bit, name in enumerate(_HWCAP_NAMES) if first >> bit & 1]
    return names + [name for bit, name in sorted(_HWCAP2_NAMES.items()) if second >> bit & 1]


def _libc() -> tuple[str | None, str | None]:
    try:
        found = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        found = None
    if found:
        name, _, version = found.partition(" ")
        return name, version
    try:
        musl = any(Path("/lib").glob("ld-musl-*"))
    except OSError:
        musl = False
    return ("musl" if musl else None), None


def _pythons() -> list[dict[str, object]]:
    """Interpreters on PATH and where installers of further Pythons put them."""
    folders = [Path(name) for name in os.environ.get("PATH", "/usr/bin:/bin").split(":") if name]
    folders.append(Path("/usr/local/bin"))
    for parent in ("~/.pyenv/versions", "~/.local/share/uv/python", "/opt"):
        folders += sorted(Path(parent).expanduser().glob("*/bin"))
    found: list[dict[str, object]] = []
    seen: set[str] = set()
    for folder in folders:
        if folder.name == "shims":  # pyenv's scripts, which stand for one of the others
            continue
        try:
            candidates = sorted(p for p in folder.iterdir() if _PYTHON_NAME.match(p.name))
        except OSError:
            continue
        for path in candidates:
            real = os.path.realpath(str(path))
            if real in seen or len(seen) >= _MAX_PYTHONS or not os.access(str(path), os.X_OK):
                continue
            seen.add(real)
            described = _describe_python(str(path))
            if described is not None:
                found.append(described)
    return found


def _describe_python(path: str) -> dict[str, object] | None:
    # What is running this script is what ``python3`` starts, and needs no starting again.
    default = os.path.realpath(path) == os.path.realpath(sys.executable)
    try:
        version, implementation, bits, free_threaded = (
            _describe_this_python()
            if default
            else json.loads(_output([path, "-S", "-E", "-c", _PROBE]) or "")
        )
    except ValueError:
        return None
    return {
        "path": path,
        "version": version,
        "implementation": implementation,
        "bits": bits,
        "free_threaded": free_threaded,
        "default": default,
    }


def _describe_this_python() -> list[object]:
    return [
        platform.python_version(),
        sys.implementation.name,
        struct.calcsize("P") * 8,
        bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    ]


def _memory(root: str) -> dict[str, int]:
    values = {}
    for line in (_read(root, "proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            values[name] = int(words[0]) * 1024
    return values


def _disk(path: str, root: str) -> dict[str, object] | None:
    """The file system that ``path`` is on, or will be: of its nearest folder that exists."""
    existing = Path.cwd() / path
    while not existing.is_dir() and existing != existing.parent:
        existing = existing.parent
    try:
        state = os.statvfs(str(existing))
    except OSError:
        return None
    filesystem = _filesystem(os.path.realpath(str(existing)), root)
    return {
        "path": str(existing),
        "filesystem": filesystem,
        "free_bytes": state.f_bavail * state.f_frsize,
        "total_bytes": state.f_blocks * state.f_frsize,
        # btrfs and others make inodes as they need them and say 0.
        "free_inodes": state.f_favail if state.f_files else None,
        "read_only": bool(state.f_flag & os.ST_RDONLY),
        "writable": os.access(str(existing), os.W_OK | os.X_OK),
    }


def _filesystem(path: str, root: str) -> str | None:
    """Type of the mount with the longest path that ``path`` begins with."""
    best, kind = "", None
    for line in (_read(root, "proc/self/mountinfo") or "").splitlines():
        front, _, back = line.partition(" - ")
        words = front.split()
        if len(words) < 5 or not back:
            continue
        mount = words[4].replace("\\040", " ")
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, back.split()[0]
    return kind


def _throttling(root: str) -> tuple[int | None, str | None]:
    """The firmware's get_throttled bits and who told them.

    The file in ``/sys`` reads 0 on kernels that never ask the firmware (raspberrypi/linux#2367),
    and the voltage sensor knows of nothing but voltage; so a 0 from these says nothing.
    """
    tool = shutil.which("vcgencmd") or "/opt/vc/bin/vcgencmd"
    match = re.search(r"throttled=(0x[0-9a-fA-F]+)", _output([tool, "get_throttled"]) or "")
    if match:
        return int(match.group(1), 16), "vcgencmd"
    text = _read(root, "sys/devices/platform/soc/soc:firmware/get_throttled")
    try:
        flags = int(text or "0", 16)
    except ValueError:
        flags = 0
    if flags:
        return flags, "sysfs"
    if _under_voltage(root):
        return 0x10001, "hwmon"
    return None, None


def _under_voltage(root: str) -> bool:
    """Whether the kernel's rpi_volt sensor saw the supply sag within the last seconds."""
    for sensor in sorted(Path(root, "sys/class/hwmon").glob("hwmon*")):
        folder = str(sensor.relative_to(root))
        if _read(root, folder + "/name") == "rpi_volt":
            return _read(root, folder + "/in0_lcrit_alarm") == "1"
    return False


def _clock_synchronized() -> bool | None:
    """Whether the kernel counts the clock as synchronized, whichever program does it."""
    try:
        buffer = ctypes.create_string_buffer(512)  # larger than any struct timex; modes = 0
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != 5  # TIME_ERROR


if __name__ == "__main__":
    sys.stdout.write(json.dumps(collect()) + "\n")
