"""The virtual Pi as a machine: what it is, that it starts once, and that it ends whole."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from edgectl.emulator import shell_command, status
from edgectl.settings import load_settings
from support.command import Edgectl

pytestmark = pytest.mark.device

SLEEP = "sleep\x00612.5"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    """One of its own, as these tests take it down."""
    edgectl = Edgectl(home=tmp_path_factory.mktemp("emulator"))
    edgectl("emulator", "up", "-q").expect(0)
    yield edgectl
    edgectl("emulator", "down", "-q").expect(0)


def shell(emulator: Edgectl, command: str) -> str:
    settings = load_settings({"EDGECTL_HOME": str(emulator.home)})
    info = status(settings=settings)
    assert info is not None
    words = [*shell_command(info, settings=settings), command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def running_with(words: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if words.encode() in line and state != "Z":
                found.append(int(entry.name))
    return found


def test_a_shell_is_an_aarch64_debian(emulator):
    assert shell(emulator, "uname -m") == "aarch64"
    assert "bookworm" in shell(emulator, "cat /etc/os-release")
    assert shell(emulator, "python3 -c 'import platform; print(platform.machine())'") == "aarch64"


def test_up_again_keeps_the_one_that_runs(emulator):
    first = emulator("emulator", "status", "--json").expect(0).document["emulator"]
    second = emulator("emulator", "up", "--json").expect(0).document["emulator"]
    assert first == second


@pytest.mark.parametrize(
    ("target", "part", "dot_product"),
    [("rpi3", "0xd03", False), ("rpi5", "0xd0b", True), ("rpi4", "0xd08", False)],
)
def test_it_is_the_board_that_is_asked_for(emulator, target, part, dot_product):
    emulator("emulator", "up", "--target", target, "-q").expect(0)
    facts = emulator("device", "facts", "emulator", "--json").expect(0).document["facts"]
    assert facts["cpu_part"] == part
    assert facts["emulated"]
    assert "virtual" in facts["board_model"]
    assert ("asimddp" in facts["cpu_features"]) == dot_product


def test_only_its_own_key_opens_it(emulator, tmp_path):
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True
    )
    settings = load_settings({"EDGECTL_HOME": str(emulator.home)})
    words = shell_command(status(settings=settings), settings=settings)
    words[words.index("-i") + 1] = str(tmp_path / "key")
    words[1:1] = ["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"]
    run = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    assert run.returncode == 255
    assert "Permission denied" in run.stderr


def test_down_ends_everything_and_a_stale_record_counts_as_down(emulator):
    emulator("emulator", "up", "-q").expect(0)
    settings = load_settings({"EDGECTL_HOME": str(emulator.home)})
    record = emulator.home / "state/emulator/state.json"
    state = json.loads(record.read_text())
    words = [*shell_command(status(settings=settings), settings=settings), "sleep 612.5"]
    session = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not running_with(SLEEP):
        assert session.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    emulator("emulator", "down").expect(0)
    session.wait(30)
    assert running_with(SLEEP) == []
    assert running_with(state["root"]) == []
    record.write_text(json.dumps({**state, "pid": os.getpid()}))  # a number that was given again
    assert emulator("emulator", "status").expect(0).stdout.strip() == "down"
    assert "edgectl emulator up" in emulator("emulator", "shell").expect(7).stderr
