"""Facts as real interpreters and shells give them, and of boards that are only files here."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from edgectl.errors import DeviceError
from edgectl.remote.base import CommandResult
from edgectl.remote.facts import DeviceFacts, gather_facts
from edgectl.remote.fake import FakeDevice
from edgectl.remote.local import LocalDevice
from edgectl.remote.shell_facts import document_from_shell
from edgectl.remote.ssh import connect
from edgectl.remote.ssh_options import SshOptions
from edgectl_runner import system_facts
from edgectl_runner.contract import SystemSample, from_document
from support.sshd import running_sshd

QUIET = {"HOME": "/nonexistent-home"}
"""Without a home, further interpreters there are not looked for, which takes its time."""


def here_with(environment: dict[str, str]) -> LocalDevice:
    return LocalDevice(environment={**QUIET, **environment})


@pytest.fixture(scope="module")
def here() -> DeviceFacts:
    return gather_facts(here_with({}))


def test_facts_of_this_computer(here: DeviceFacts) -> None:
    assert here.method == "python"
    assert here.kernel_architecture == os.uname().machine
    assert here.userland_bits == 64
    assert here.libc is not None
    assert here.memory_total_bytes is not None
    assert here.memory_total_bytes > 10**8
    assert here.clock_skew_s is not None
    assert abs(here.clock_skew_s) < 5
    assert here.root_disk is not None
    assert here.root_disk.total_bytes > here.root_disk.free_bytes > 0
    assert not here.emulated
    default = here.default_python
    assert default is not None
    assert default.minor == sys.version_info[:2]
    assert default.abi.startswith(f"cp{sys.version_info[0]}{sys.version_info[1]}")


def test_the_device_says_where_edgectls_folder_is(tmp_path: Path) -> None:
    for variables, expected in (
        ({"EDGECTL_ROOT": str(tmp_path / "a" / "b")}, tmp_path / "a" / "b"),
        ({"XDG_DATA_HOME": str(tmp_path)}, tmp_path / "edgectl"),
    ):
        facts = gather_facts(LocalDevice(environment=variables))
        assert facts.root == str(expected)
        assert facts.root_disk is not None
        assert facts.root_disk.path == str(tmp_path), "the nearest folder that exists"


def test_emulated_devices_say_so() -> None:
    assert gather_facts(here_with({"EDGECTL_EMULATED": "1"})).emulated
    assert gather_facts(LocalDevice(emulated=True, environment=QUIET)).emulated


def without_python(folder: Path) -> dict[str, str]:
    """An environment whose PATH has everything but Python."""
    folder.mkdir()
    for source in ("/usr/bin", "/bin"):
        for program in Path(source).iterdir():
            link = folder / program.name
            if not program.name.startswith("python") and not link.exists():
                link.symlink_to(program)
    return {"PATH": str(folder)}


def test_shell_tells_the_same_where_python_is_missing(here: DeviceFacts, tmp_path: Path) -> None:
    facts = gather_facts(here_with(without_python(tmp_path / "bin")))
    assert facts.method == "sh"
    assert facts.pythons == ()
    same = (
        "board_model", "kernel", "kernel_architecture", "userland_bits", "libc", "libc_version",
        "os_name", "cpu_part", "cpu_count", "memory_total_bytes", "root", "systemd", "user",
    )  # fmt: skip
    for name in same:
        assert getattr(facts, name) == getattr(here, name), name
    assert facts.clock_skew_s is not None
    assert abs(facts.clock_skew_s) < 5
    assert facts.root_disk is not None
    assert here.root_disk is not None
    assert facts.root_disk.total_bytes == here.root_disk.total_bytes
    assert facts.root_disk.writable


def interpreters() -> Iterator[object]:
    for minor in range(6, 16):
        pattern = f".pyenv/versions/3.{minor}.*/bin/python3"
        found = next(Path.home().glob(pattern), None) or shutil.which(f"python3.{minor}")
        if found is not None:
            yield pytest.param(str(found), minor, id=f"3.{minor}")


@pytest.mark.parametrize(("path", "minor"), list(interpreters()))
def test_every_python_from_3_7_on_runs_the_script(path: str, minor: int, tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(path)
    device = here_with({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    facts = gather_facts(device)
    assert facts.method == ("python" if minor >= 7 else "sh")
    assert any(python.minor == (3, minor) for python in facts.pythons)
    assert facts.default_python is not None
    assert facts.default_python.minor == (3, minor)


def test_script_is_python_3_7() -> None:
    source = Path(system_facts.__file__).read_text()
    ast.parse(source, feature_version=(3, 7))
    imported = {
        name.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import)
        for name in node.names
    }  # fmt: skip
    assert imported <= sys.stdlib_module_names


def board(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


PI4 = {
    "proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\0",
    "proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd crc32\nCPU implementer\t: 0x41\n"
    "CPU part\t: 0xd08\n\nprocessor\t: 1\nCPU part\t: 0xd08\n",
    "proc/meminfo": "MemTotal:        3884336 kB\nMemAvailable:    3412345 kB\n",
    "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n',
    "sys/class/thermal/thermal_zone0/temp": "48312\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1500000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "ondemand\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "600000\n",
    "sys/devices/platform/soc/soc:firmware/get_throttled": "0\n",
    "run/systemd/system/unit": "",
}


@pytest.fixture
def no_vcgencmd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


def test_a_raspberry_pi_4(tmp_path: Path, no_vcgencmd: None) -> None:
    facts = from_document(DeviceFacts, system_facts.collect(board(tmp_path, PI4)) | {"pythons": []})
    assert facts.board_model == "Raspberry Pi 4 Model B Rev 1.4"
    assert (facts.core, facts.cpu_part) == ("Cortex-A72", "0xd08")
    assert facts.memory_total_bytes == 3884336 * 1024
    assert facts.os_name == "Debian GNU/Linux 12 (bookworm)"
    assert facts.sample.temperature_celsius == pytest.approx(48.312)
    assert facts.sample.cpu_frequency_mhz == (1500.0, 600.0)
    assert facts.sample.governor == "ondemand"
    assert facts.systemd


def test_a_zero_from_sysfs_is_unknown_and_never_ok(tmp_path: Path, no_vcgencmd: None) -> None:
    sample = from_document(SystemSample, system_facts.sample(board(tmp_path, PI4)))
    assert sample.throttle_flags is None
    wrong = {"sys/devices/platform/soc/soc:firmware/get_throttled": "50005\n"}
    sample = from_document(SystemSample, system_facts.sample(board(tmp_path, wrong)))
    assert sample.throttle_flags == 0x50005


def test_voltage_sensor_is_believed_when_it_complains(tmp_path: Path, no_vcgencmd: None) -> None:
    sensor = {"sys/class/hwmon/hwmon0/name": "cpu_thermal\n"}
    for alarm, flags in (("1", 0x10001), ("0", None)):
        sensor["sys/class/hwmon/hwmon1/name"] = "rpi_volt\n"
        sensor["sys/class/hwmon/hwmon1/in0_lcrit_alarm"] = alarm + "\n"
        sample = from_document(SystemSample, system_facts.sample(board(tmp_path, sensor)))
        assert sample.throttle_flags == flags


@pytest.mark.parametrize(
    ("answer", "flags"),
    [
        ("throttled=0x50005", 0x50005),
        ("throttled=0x0", 0),
        ("VCHI initialization failed", None),
        ("error=1 error_msg='Command not registered'", None),
    ],
)
@pytest.mark.parametrize("how", ["python", "sh"])
def test_vcgencmd_is_believed(tmp_path: Path, answer: str, flags: int | None, how: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    environment = (
        without_python(tmp_path / "tools") if how == "sh" else {"PATH": os.environ["PATH"]}
    )
    tool = folder / "vcgencmd"
    tool.write_text(f'#!/bin/sh\n[ "$1" = get_throttled ] && echo "{answer}"\n')
    tool.chmod(0o755)
    facts = gather_facts(here_with({"PATH": f"{folder}:{environment['PATH']}"}))
    assert facts.method == how
    assert facts.sample.throttle_flags == flags
    assert facts.throttle_source == (None if flags is None else "vcgencmd")


def test_read_only_full_and_small_file_systems(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=64", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        device = here_with({"EDGECTL_ROOT": str(folder / "edgectl")})
        disk = gather_facts(device).root_disk
        assert disk is not None
        assert (disk.path, disk.filesystem, disk.forgets) == (str(folder), "tmpfs", True)
        assert disk.total_bytes == 1 << 20
        assert disk.free_inodes is not None
        assert disk.free_inodes < 64
        assert not disk.read_only
        (folder / "file").write_bytes(b"x" * ((1 << 20) - 8192))
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        disk = gather_facts(device).root_disk
        assert disk is not None
        assert disk.free_bytes <= 8192
        assert disk.read_only
        shell = without_python(tmp_path / "bin")
        device = here_with({"EDGECTL_ROOT": str(folder / "edgectl"), **shell})
        by_shell = gather_facts(device).root_disk
        assert by_shell is not None
        assert (by_shell.free_bytes, by_shell.writable) == (disk.free_bytes, False)
        assert by_shell.free_inodes == disk.free_inodes
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_over_ssh(tmp_path: Path) -> None:
    with running_sshd(tmp_path / "sshd") as server:
        home = tmp_path / "home"
        (home / ".ssh").mkdir(parents=True)
        (home / ".ssh" / "known_hosts").write_text(server.known_line)
        options = SshOptions(
            home=home, identity_file=server.user_key, agent_socket=None,
            known_hosts_file=home / "k", system_config_file=home / "s",
        )  # fmt: skip
        with connect(server.destination, options=options) as device:
            facts = gather_facts(device)
    assert facts.label == server.destination
    assert facts.method == "python"


def answer_of(document: dict[str, object]) -> FakeDevice:
    device = FakeDevice()
    device.answers("printenv", exit_code=1)
    device.answers("python3", "-", stdout=b"welcome!\n" + json.dumps(document).encode() + b"\n")
    return device


def test_wrong_clock_is_measured_against_this_computer(here: DeviceFacts) -> None:
    document = asdict(here)
    document |= {"device_time_s": time.time() - 1000.0}
    facts = gather_facts(answer_of(document))
    assert facts.clock_skew_s == pytest.approx(-1000.0, abs=2)


def test_newer_scripts_may_say_more_but_not_something_else(here: DeviceFacts) -> None:
    document = asdict(here) | {"new_field": 1}
    assert gather_facts(answer_of(document)).kernel == here.kernel
    document |= {"cpu_count": "four"}
    with pytest.raises(DeviceError, match="cpu_count"):
        gather_facts(answer_of(document))


def test_device_that_runs_no_shell() -> None:
    device = FakeDevice()
    device.answers(
        "sh",
        stdout=b"This account is currently not available.\n",
        exit_code=1,
    )
    with pytest.raises(DeviceError, match="does not run commands as a Linux machine") as caught:
        gather_facts(device)
    assert "not available" in (caught.value.cause or "")


def test_shell_document_of_a_32_bit_pi() -> None:
    text = (
        "edgectl_facts=1\nboard_model=Raspberry Pi 4 Model B Rev 1.1\ncpu_implementer=0x41\n"
        "cpu_part=0xd08\ncpu_features=half thumb neon\ncpu_count=4\nkernel=6.6\n"
        "kernel_architecture=aarch64\nuserland_bits=32\nlibc=glibc 2.31\n"
        "root=/home/pi/.local/share/edgectl\nroot_path=/home/pi\n"
        "root_space=/dev/root 30000000 20000000 9000000 70% /\n"
        "root_inodes=/dev/root 1900000 100000 1800000 6% /\nroot_writable=1\n"
        "throttled=throttled=0x50000\ntime=1700000000\npython_default=/usr/bin/python3\n"
        "python=/usr/bin/python3 Python 3.9.2\nuser=pi\nemulated=\n"
    )
    facts = from_document(DeviceFacts, document_from_shell(text))
    assert (facts.userland_bits, facts.glibc, facts.core) == (32, (2, 31), "Cortex-A72")
    assert facts.default_python is not None
    assert (facts.default_python.abi, facts.default_python.bits) == ("cp39", 32)
    assert facts.root_disk is not None
    assert facts.root_disk.free_bytes == 9000000 * 1024
    assert facts.root_disk.free_inodes == 1800000
    assert facts.sample.throttle_flags == 0x50000


@pytest.mark.parametrize("text", ["", "hello\n", "edgectl_facts=1\n", "=\n=\n"])
def test_other_text_is_no_document(text: str) -> None:
    assert document_from_shell(text) is None


def test_command_result_is_what_the_fake_records() -> None:
    device = FakeDevice()
    device.answers("echo", stdout=b"hi\n")
    assert device.run(["echo", "x"], stdin=b"in") == CommandResult(
        argv=("echo", "x"), exit_code=0, stdout=b"hi\n", stderr=b""
    )
    assert device.run(["other"]).exit_code == 127
    assert device.commands == [("echo", "x"), ("other",)]
    assert device.inputs == [b"in", b""]
