"""A module for another processor is refused before it is loaded."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from edgectl_runner import processor
from edgectl_runner.failures import RunnerError


def elf_header(machine: int) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, machine)


def test_the_architecture_is_read_from_inside_the_module(tmp_path: Path) -> None:
    module = tmp_path / "m.vmfb"
    module.write_bytes(b"flatbuffer" + b"\x7fELF" + bytes(40) + elf_header(183) + bytes(64))
    assert processor.module_architectures(module) == ("aarch64",)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"no native code"])
def test_no_native_code_is_no_architecture(tmp_path: Path, content: bytes) -> None:
    module = tmp_path / "m.vmfb"
    module.write_bytes(content)
    assert processor.module_architectures(module) == ()


def test_another_architecture_is_one_short_sentence(tmp_path: Path) -> None:
    here = os.uname().machine
    other, machine = ("x86_64", 62) if here == "aarch64" else ("aarch64", 183)
    module = tmp_path / "m.vmfb"
    module.write_bytes(elf_header(machine))
    with pytest.raises(RunnerError) as caught:
        processor.check_architecture(module, here)
    assert caught.value.message == f"artifact is {other}, device is {here}"
    assert caught.value.code == 7


def auxiliary_vector(hwcap: int, hwcap2: int = 0) -> bytes:
    return struct.pack("<6Q", 16, hwcap, 26, hwcap2, 0, 0)


def test_features_of_a_cortex_a72_from_its_auxiliary_vector() -> None:
    # fp, asimd, evtstrm, crc32, cpuid: what a Raspberry Pi 4 reports.
    features = processor._aarch64_features(auxiliary_vector(0x887))
    assert features is not None
    assert {"fp-armv8", "neon", "crc"} <= features
    assert not {"dotprod", "fullfp16", "aes", "lse"} & features


def test_a_missing_feature_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "available_features", lambda: frozenset({"neon", "crc"}))
    monkeypatch.setattr(
        processor.os, "uname", lambda: os.uname_result(("Linux", "pi", "6", "1", "aarch64"))
    )
    with pytest.raises(RunnerError) as caught:
        processor.check_features(["+v8.2a", "+neon", "+dotprod", "-aes", "+fullfp16"], "rpi5")
    assert "compiled for rpi5 and needs dotprod, fullfp16" in caught.value.message


def test_features_that_cannot_be_asked_for_are_not_reported_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processor, "available_features", lambda: None)
    processor.check_features(["+dotprod"], "rpi5")
