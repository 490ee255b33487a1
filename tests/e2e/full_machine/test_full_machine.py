"""Deployments to a machine with a kernel, a file system and a card of its own, and its faults."""

from __future__ import annotations

import json
import time

import pytest

pytestmark = pytest.mark.slow


def test_it_is_a_whole_pi_4_with_nothing_failed(pi):
    machine = pi.machine
    assert machine.run("uname -m").strip() == "aarch64"
    assert "0xd08" in machine.run("grep part /proc/cpuinfo"), "a Cortex-A72"
    assert machine.run("systemctl is-system-running --wait").strip() == "running"
    assert machine.run("findmnt -no FSTYPE /").strip() == "ext4"
    assert int(machine.run("nproc")) == machine.spec.cores
    assert 900_000 < int(machine.run("grep MemTotal /proc/meminfo").split()[1]) < 1_048_576


def test_a_deployment_as_an_ordinary_user_and_again_for_nothing(pi):
    first = pi.deploy(pi.old).document
    assert first["outputs_match"]
    assert first["emulated"]
    assert (first["payload_bytes_sent"], first["runtime_bytes_sent"]) == (0, 0)
    owner = pi.machine.run("stat -c %U /home/pi/.local/share/edgectl/releases").strip()
    assert owner == "pi", "nothing is done as root"


def test_a_full_card_is_refused_and_harms_nothing(pi):
    before = pi.current()
    pi.edgectl("emulator", "fault", "disk-full", "-q").expect(0)
    try:
        error = pi.deploy(pi.new, exit_code=7).document["error"]
        assert "0.0 MB free" in error["message"]
        assert "needed" in error["message"]
        assert pi.current() == before
        # What needs no room still works.
        pi.edgectl("status", "--device", "emulator", "--json").expect(0)
    finally:
        pi.edgectl("emulator", "fault", "disk-full", "--end", "-q").expect(0)
    assert pi.current() == before


def test_a_read_only_card_is_refused_in_words(pi):
    before = pi.current()
    pi.edgectl("emulator", "fault", "read-only", "-q").expect(0)
    try:
        error = pi.deploy(pi.new, exit_code=7).document["error"]
        assert "read-only" in error["message"] or "writable" in json.dumps(error)
    finally:
        pi.edgectl("emulator", "fault", "read-only", "--end", "-q").expect(0)
    assert pi.current() == before


def test_no_network_ends_in_time_and_leaves_the_device_free(pi):
    before = pi.current()
    pi.edgectl("emulator", "fault", "network-down", "-q").expect(0)
    try:
        start = time.monotonic()
        pi.edgectl("status", "--device", "emulator", "--json").expect(6)
        assert time.monotonic() - start < 300
    finally:
        pi.edgectl("emulator", "fault", "network-down", "--end", "-q").expect(0)
    status = pi.edgectl("status", "--device", "emulator", "--json").expect(0).document["status"]
    assert status["locked_by"] is None
    assert status["current"] == before


def test_a_clock_at_1970_decides_nothing(pi):
    pi.edgectl("emulator", "fault", "clock-1970", "-q").expect(0)
    try:
        assert pi.deploy(pi.new).document["outputs_match"]
        records = (
            pi.edgectl("history", "--device", "emulator", "--json").expect(0).document["records"]
        )
        assert records[-1]["wall"].startswith("1970-")
        assert not records[-1]["clock_synced"]
        pi.edgectl("rollback", "--device", "emulator", "-q").expect(0)
    finally:
        pi.edgectl("emulator", "fault", "clock-1970", "--end", "-q").expect(0)


def test_what_was_said_to_be_done_survives_the_power(pi):
    said = pi.deploy(pi.new).document["release"]
    assert pi.current() == said
    pi.cut_power()
    assert "edgectl emulator up" in pi.edgectl("emulator", "power-cut").expect(7).stderr
    pi.boot()
    assert pi.current() == said
    status = pi.edgectl("status", "--device", "emulator", "--json").expect(0).document["status"]
    assert status["current"] == said
    assert status["on_probation"] is None
    assert pi.machine.run("systemctl --failed --no-legend").strip() == ""


def test_a_snapshot_brings_back_memory_and_disk(pi):
    pi.machine.run("echo before > /root/note; setsid sleep 31415 </dev/null >/dev/null 2>&1 &")
    pi.edgectl("emulator", "snapshot", "fresh", "-q").expect(0)
    pi.machine.run("echo after > /root/note; pkill sleep")
    pi.boot("--snapshot", "fresh")
    assert pi.machine.run("cat /root/note").strip() == "before"
    assert "31415" in pi.machine.run("ps -eo args")
    pi.edgectl("status", "--device", "emulator", "--json").expect(0)
