"""The initial RAM disk of the whole virtual Pi: modules after those that they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgectl.emulator.full.initrd import make_initrd


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    folder = tmp_path / "lib" / "modules" / "6.1.0" / "kernel" / "drivers"
    folder.mkdir(parents=True)
    for name, needed in {
        "virtio": "",
        "virtio_ring": "virtio",
        "virtio_mmio": "virtio_ring,virtio",
        "virtio_blk": "virtio,virtio_ring",
        "virtio-rng": "virtio",
        "unrelated": "",
    }.items():
        text = b"\x7fELF\0license=GPL\0depends=" + needed.encode() + b"\0name=x\0"
        (folder / f"{name}.ko").write_bytes(text)
    (tmp_path / "busybox").write_bytes(b"\x7fELF busybox")
    return tmp_path


def members(archive: bytes) -> dict[str, bytes]:
    """Reads the "newc" format back."""
    found, at = {}, 0
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        size, name_size = fields[6], fields[11]
        name = archive[at + 110 : at + 110 + name_size - 1].decode()
        at = (at + 110 + name_size + 3) // 4 * 4
        if name == "TRAILER!!!":
            return found
        found[name] = archive[at : at + size]
        at = (at + size + 3) // 4 * 4


def test_modules_come_after_what_they_need_and_built_in_ones_are_left_out(kernel: Path) -> None:
    found = members(make_initrd(kernel, kernel / "busybox"))
    line = next(r for r in found["init"].decode().splitlines() if r.startswith("for module in"))
    order = line.removeprefix("for module in ").split(";")[0].split()
    assert order == ["virtio", "virtio_ring", "virtio_mmio", "virtio_blk", "virtio-rng"]
    assert {f"modules/{name}.ko" for name in order} <= found.keys()
    assert "modules/unrelated.ko" not in found
    assert found["bin/busybox"] == b"\x7fELF busybox"
    assert found["init"].startswith(b"#!/bin/busybox sh\n")
