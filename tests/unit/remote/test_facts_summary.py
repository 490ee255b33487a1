from __future__ import annotations

from dataclasses import replace

from edgectl.remote.facts_summary import summarize
from edgectl_runner.contract import SystemSample
from support.device_facts import HEALTHY_PI4, spoiled


def test_a_healthy_pi_in_words() -> None:
    lines = dict(summarize(HEALTHY_PI4))
    assert lines["board"] == "Raspberry Pi 4 Model B Rev 1.4"
    assert lines["core"] == "4 x Cortex-A72"
    assert lines["frequency"] == "1500 MHz"
    assert lines["throttling"] == "ok"
    assert lines["clock"] == "+0.4 s from this computer's, synchronized"
    assert lines["Python"] == "3.11.2 (/usr/bin/python3, cp311, default)"
    assert lines["disk"].startswith("20.00 of 32.00 GB free at /home/pi (ext4), 1000000 inodes")


def test_what_is_not_told_is_not_called_ok() -> None:
    silent = spoiled(
        board_model=None, cpu_part=None, cpu_features=(), libc=None, libc_version=None,
        userland_bits=None, pythons=(), memory_total_bytes=None, root_disk=None, tmp_disk=None,
        sample=SystemSample(), clock_skew_s=None, emulated=True,
    )  # fmt: skip
    lines = dict(summarize(silent))
    assert lines["throttling"] == "unknown"
    for name in ("board", "programs", "features", "memory", "disk", "governor", "clock"):
        assert lines[name] == "not told"
    assert lines["Python"] == "none"
    assert "emulated" in lines["device"]


def test_troubles_of_a_disk_are_shown() -> None:
    assert HEALTHY_PI4.root_disk is not None
    disk = replace(HEALTHY_PI4.root_disk, read_only=True, filesystem="overlay", free_inodes=None)
    assert "(overlay, read-only)" in dict(summarize(spoiled(root_disk=disk)))["disk"]
