"""The smallest initial RAM disk that brings Debian's kernel to its root: busybox and a few modules.

Debian's own takes minutes to generate under emulation. A machine that qemu describes needs its
virtio drivers and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["MODULES", "make_initrd"]

MODULES = ("virtio_mmio", "virtio_blk", "virtio_net", "virtio-rng", "ext4", "sch_netem")
"""What is loaded (with what it needs), unless the kernel has it built in; netem is for tests."""

_INIT = """\
#!/bin/busybox sh
B=/bin/busybox
$B mount -t devtmpfs dev /dev
$B mount -t proc proc /proc
for module in {modules}; do $B insmod /modules/$module.ko; done
tries=0
until [ -b /dev/vda ] || [ $tries -ge 200 ]; do $B usleep 50000; tries=$((tries + 1)); done
$B mount -t ext4 -o noatime /dev/vda /root || $B poweroff -f
$B umount /proc
$B mount --move /dev /root/dev
exec $B switch_root /root /sbin/init
"""


def make_initrd(kernel: Path, busybox: Path) -> bytes:
    """A cpio archive for the kernel whose package was unpacked in ``kernel``."""
    files = dict.fromkeys(("bin", "dev", "proc", "root", "modules"), (0o040755, b""))
    files["bin/busybox"] = (0o100755, busybox.read_bytes())
    found: dict[str, Path] = {}
    for name in MODULES:
        _with_needed(kernel, name, found)
    for name, path in found.items():
        files[f"modules/{name}.ko"] = (0o100644, path.read_bytes())
    init = _INIT.format(modules=" ".join(found))
    files["init"] = (0o100755, init.encode())
    return b"".join(_archive(files))


def _with_needed(kernel: Path, name: str, found: dict[str, Path]) -> None:
    """Adds a module after those that it needs; its file names them (``depends=``)."""
    paths = [p for spelled in {name, name.replace("_", "-")} for p in kernel.rglob(f"{spelled}.ko")]
    if not paths or name in found:
        return
    listed = re.search(rb"\0depends=([^\0]*)\0", paths[0].read_bytes())
    for needed in listed[1].decode().split(",") if listed is not None else ():
        if needed:
            _with_needed(kernel, needed, found)
    found[name] = paths[0]


def _archive(files: Mapping[str, tuple[int, bytes]]) -> Iterator[bytes]:
    """The "newc" format: a header of hexadecimal numbers, the name, the data, each padded to 4."""
    for number, (name, (mode, data)) in enumerate(
        [*files.items(), ("TRAILER!!!", (0, b""))], start=1
    ):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields)
        yield _padded(header + name.encode() + b"\0")
        yield _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
