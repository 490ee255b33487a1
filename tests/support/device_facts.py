"""Facts of a healthy Raspberry Pi 4, to be spoiled one at a time."""

from __future__ import annotations

from dataclasses import replace

from edgectl.remote.facts import DeviceFacts, DiskFacts, PythonFacts
from edgectl_runner.contract import SystemSample

GOOD_DISK = DiskFacts(
    path="/home/pi",
    filesystem="ext4",
    free_bytes=20 * 10**9,
    total_bytes=32 * 10**9,
    free_inodes=1_000_000,
    read_only=False,
    writable=True,
)

HEALTHY_PI4 = DeviceFacts(
    board_model="Raspberry Pi 4 Model B Rev 1.4",
    cpu_implementer="0x41",
    cpu_part="0xd08",
    cpu_count=4,
    cpu_features=("fp", "asimd", "evtstrm", "crc32", "cpuid"),
    kernel="6.6.51+rpt-rpi-v8",
    kernel_architecture="aarch64",
    userland_bits=64,
    libc="glibc",
    libc_version="2.36",
    os_name="Debian GNU/Linux 12 (bookworm)",
    pythons=(
        PythonFacts(
            path="/usr/bin/python3",
            version="3.11.2",
            implementation="cpython",
            bits=64,
            default=True,
        ),
    ),
    memory_total_bytes=4 << 30,
    memory_available_bytes=3 << 30,
    root="/home/pi/.local/share/edgectl",
    root_disk=GOOD_DISK,
    tmp_disk=replace(GOOD_DISK, path="/tmp"),
    sample=SystemSample(
        temperature_celsius=48.3,
        cpu_frequency_mhz=(1500.0,) * 4,
        throttle_flags=0,
        governor="performance",
        load_1min=0.1,
        memory_available_bytes=3 << 30,
    ),
    throttle_source="vcgencmd",
    device_time_s=1.0e9,
    clock_synchronized=True,
    systemd=True,
    user="pi",
    emulated=False,
    method="python",
    label="pi@kitchen:22",
    clock_skew_s=0.4,
)


def spoiled(**changes: object) -> DeviceFacts:
    """The healthy Pi with some facts changed."""
    return replace(HEALTHY_PI4, **changes)  # type: ignore[arg-type]


def python(version: str, **changes: object) -> PythonFacts:
    """One interpreter, the default one unless said otherwise."""
    values: dict[str, object] = {
        "path": f"/usr/bin/python{version.rpartition('.')[0]}",
        "version": version,
        "implementation": "cpython",
        "bits": 64,
        "default": True,
    }
    return PythonFacts(**{**values, **changes})  # type: ignore[arg-type]
