"""Running commands: arguments arrive as they are, streams are drained, time is limited."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgectl.errors import DeviceError
from edgectl.remote.base import Device
from edgectl.remote.local import LocalDevice
from edgectl.remote.ssh import SshDevice, connect
from edgectl.remote.ssh_options import SshOptions
from support.sshd import running_sshd


@pytest.fixture(params=["ssh", "local"])
def any_device(request: pytest.FixtureRequest) -> Device:
    """What is true over SSH must be true of this computer in the role of a device."""
    if request.param == "local":
        return LocalDevice()
    ssh: SshDevice = request.getfixturevalue("device")
    return ssh


def still_running(mark: str) -> bool:
    found = subprocess.run(["pgrep", "-f", f"^sleep {mark}$"], capture_output=True, check=False)
    return found.returncode == 0


def gone(mark: str) -> bool:
    deadline = time.monotonic() + 5
    while still_running(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not still_running(mark)


def test_output_exit_code_and_input(any_device: Device) -> None:
    result = any_device.run(["sh", "-c", "cat; echo problem >&2; exit 3"], stdin=b"over\0here\n")
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"over\0here\n", b"problem\n")
    assert result.argv[0] == "sh"


def test_ten_megabytes_on_both_streams_do_not_hang(any_device: Device) -> None:
    program = (
        "import sys, threading\n"
        "t = threading.Thread(target=lambda: sys.stderr.write('e' * 10_000_000))\n"
        "t.start(); sys.stdout.write('o' * 10_000_000); t.join()\n"
    )
    result = any_device.run([sys.executable, "-c", program], timeout_s=30)
    assert result.exit_code == 0
    assert result.stdout == b"o" * 10_000_000
    assert result.stderr == b"e" * 10_000_000


def test_large_input_arrives_whole(any_device: Device) -> None:
    data = os.urandom(3_000_000)
    assert any_device.run(["cat"], stdin=data, timeout_s=30).stdout == data


def test_input_that_nobody_reads_is_no_error(any_device: Device) -> None:
    assert any_device.run(["true"], stdin=b"x" * 3_000_000, timeout_s=30).exit_code == 0


def test_unknown_program_is_an_exit_code(any_device: Device) -> None:
    result = any_device.run(["no-such-program-anywhere"])
    assert result.exit_code == 127
    assert b"no-such-program-anywhere" in result.stderr


def test_death_by_signal_is_seen(any_device: Device) -> None:
    assert any_device.run(["sh", "-c", "kill -KILL $$"]).exit_code == 137


def test_command_over_its_deadline_is_ended_on_the_device(any_device: Device) -> None:
    mark = f"7{os.getpid() % 10000}.1"
    started = time.monotonic()
    with pytest.raises(DeviceError, match=r"did not end within 0\.6 s and was ended"):
        any_device.run(["sh", "-c", f"sleep {mark} & sleep {mark}"], timeout_s=0.6)
    assert time.monotonic() - started < 5
    assert gone(mark)
    assert any_device.run(["echo", "usable"]).stdout == b"usable\n"


def test_ctrl_c_ends_the_command_on_the_device(any_device: Device) -> None:
    mark = f"7{os.getpid() % 10000}.2"

    def interrupt_when_running() -> None:
        while not still_running(mark):
            time.sleep(0.02)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_when_running, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        any_device.run(["sleep", mark], timeout_s=20)
    assert gone(mark)


def test_standard_error_comes_while_the_command_runs(any_device: Device) -> None:
    pieces: list[bytes] = []
    threads: set[int] = set()

    def listen(piece: bytes) -> None:
        pieces.append(piece)
        threads.add(threading.get_ident())

    result = any_device.run(["sh", "-c", "echo one >&2; sleep 0.3; echo two >&2"], on_stderr=listen)
    assert b"".join(pieces) == result.stderr == b"one\ntwo\n"
    assert len(pieces) >= 2
    assert threads == {threading.get_ident()}


hostile = st.lists(
    st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), min_size=0, max_size=20)
    | st.sampled_from(
        ["$(touch canary)", "`id`", "; rm -rf x", "-rf", "a\nb", "'", '"', "%i", "~"]
    ),
    min_size=1,
    max_size=40,
)


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(arguments=hostile)
def test_hostile_arguments_arrive_byte_for_byte(device: SshDevice, arguments: list[str]) -> None:
    result = device.run(["printf", r"%s\0", *arguments])
    assert result.stdout == b"".join(a.encode() + b"\0" for a in arguments)
    assert device.run(["test", "-e", "canary"]).exit_code != 0


def test_emulated_is_what_the_device_says(device: SshDevice) -> None:
    assert device.emulated is False
    assert device.label.endswith(device.label.rpartition("@")[2])


def test_ctrl_c_right_after_the_start_leaves_nothing_running(device: SshDevice) -> None:
    mark = f"7{os.getpid() % 10000}.3"
    for delay_s in (0.01, 0.1, 0.3):
        timer = threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            device.run(["sleep", mark], timeout_s=20)
        assert gone(mark), delay_s


def test_command_whose_whole_session_is_killed(device: SshDevice) -> None:
    """As the out-of-memory killer may do it: no exit code comes back, the connection stays."""
    with pytest.raises(DeviceError, match="was killed"):
        device.run(["sh", "-c", "kill -KILL $PPID"], timeout_s=10)
    assert device.run(["echo", "usable"]).stdout == b"usable\n"


def test_commands_side_by_side(device: SshDevice) -> None:
    held: list[bytes] = []
    thread = threading.Thread(
        target=lambda: held.append(device.run(["sh", "-c", "sleep 1; echo held"]).stdout)
    )
    thread.start()
    assert [device.run(["echo", str(i)]).stdout for i in range(3)] == [b"0\n", b"1\n", b"2\n"]
    thread.join(10)
    assert held == [b"held\n"]


def test_server_that_allows_one_session_only(
    options_for: Callable[..., SshOptions], tmp_path: Path
) -> None:
    with (
        running_sshd(tmp_path / "one", settings=["MaxSessions 1"]) as one,
        connect(one.destination, options=options_for(one)) as device,
    ):
        for _ in range(3):
            assert device.run(["echo", "a"]).stdout == b"a\n"
        device.put(b"x", str(tmp_path / "file"))  # keeps its channel
        with pytest.raises(DeviceError, match="refuses to open another session") as caught:
            device.run(["true"])
        assert "MaxSessions" in (caught.value.cause or "")


def test_endless_output_is_cut_off(device: SshDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgectl.remote.ssh_command._MAX_OUTPUT_BYTES", 3 << 20)
    with pytest.raises(DeviceError, match="more than 3 MiB"):
        device.run(["yes", f"endless {os.getpid()}"], timeout_s=30)
    found = subprocess.run(["pgrep", "-f", f"^yes endless {os.getpid()}"], check=False)
    assert found.returncode == 1
