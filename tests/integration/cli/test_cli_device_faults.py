"""Devices that are absent, foreign, full or that die: message, exit code, and what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support import small_models
from support.command import Ended
from support.sshd import make_key, public_line, shown_fingerprint
from support.toxic_proxy import ToxicProxy, Toxics, silent_listener


def deploy(board, bundle, *more: str, device: str = "board", exit_code: int = 0) -> Ended:
    return board.edgectl("deploy", bundle, "--device", device, *more).expect(exit_code)


def test_a_board_that_is_all_right_twice(board, bundle):
    assert "bytes sent" in deploy(board, bundle).stdout
    assert " 0 bytes sent" in deploy(board, bundle).stdout
    assert board.leftovers == []


def test_a_host_that_does_not_exist(board, bundle):
    error = deploy(board, bundle, device="pi@no-such-host.invalid", exit_code=6).stderr
    assert "cannot find the host 'no-such-host.invalid'" in error


def test_a_port_where_nobody_listens(board, bundle):
    error = deploy(board, bundle, device="pi@127.0.0.1:1", exit_code=6).stderr
    assert "127.0.0.1:1 refused the connection" in error
    assert "systemctl enable --now ssh" in error


def test_a_host_that_says_nothing_after_it_connected(board, bundle):
    with silent_listener() as port:
        start = time.monotonic()
        error = deploy(
            board, bundle, "--ssh-timeout", "2", device=f"pi@127.0.0.1:{port}", exit_code=6
        ).stderr
    assert time.monotonic() - start < 60
    assert f"127.0.0.1:{port}" in error
    assert "error:" in error


def test_an_unknown_key_is_refused_with_its_fingerprint_and_taken_when_asked(board, bundle):
    board.known("")
    error = deploy(board, bundle, exit_code=6).stderr
    assert shown_fingerprint(board.sshd.host_keys[0]) in error
    assert "--accept-new-host-key" in error
    deploy(board, bundle, "--accept-new-host-key")
    deploy(board, bundle)


def test_a_changed_key_is_always_refused(board, bundle, tmp_path):
    other = make_key(tmp_path / "other")
    board.known(f"{board.sshd.name} {public_line(other)}\n")
    for flags in ([], ["--accept-new-host-key"]):
        error = deploy(board, bundle, *flags, exit_code=6).stderr
        assert "changed" in error.lower()
        assert shown_fingerprint(board.sshd.host_keys[0]) in error


def test_a_key_that_the_device_does_not_take(board, bundle, tmp_path):
    stranger = make_key(tmp_path / "stranger")
    config = Path(board.edgectl.environment["HOME"]) / ".ssh" / "config"
    config.write_text(config.read_text().replace(str(board.sshd.user_key), str(stranger)))
    error = deploy(board, bundle, exit_code=6).stderr
    assert "stranger" in error
    assert "ssh-copy-id" in error


def test_a_full_disk_is_told_in_bytes_and_keeps_what_was_there(board, bundle):
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(board.root.parent)], check=True
    )
    try:
        error = deploy(board, bundle, exit_code=7).stderr
        assert "disk" in error.lower()
        assert "MB" in error
        assert board.leftovers == []
    finally:
        subprocess.run(["umount", str(board.root.parent)], check=True)
    deploy(board, bundle)


def test_a_device_that_dies_while_it_runs(board, bundle):
    deploy(board, bundle)
    process = board.edgectl.start("deploy", bundle, "--device", "board", "--min-seconds", "120")
    _wait_for(lambda: board.processes("run"), process)
    _kill_server(board.sshd.folder)
    out, err = process.communicate(timeout=120)
    assert process.returncode in (6, 7), err
    assert "error:" in err
    assert "Traceback" not in err
    assert "p50" not in out, "no latency of a run that did not end"
    _wait_for(lambda: not board.processes("run"), None)


@pytest.mark.parametrize("target", ["rpi4"])
def test_code_for_another_processor(board, target, tmp_path):
    made = tmp_path / "other.edgectl"
    model = f"{small_models.__file__}:digits"
    board.edgectl("compile", model, "--target", target, "-o", made).expect(0)
    error = deploy(board, made, exit_code=7).stderr
    assert "aarch64" in error
    assert not (board.root / "current").exists()


def _wait_for(condition, process: subprocess.Popen[str] | None) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        if process is not None and process.poll() is not None:
            raise AssertionError(process.communicate())
        time.sleep(0.05)


def _kill_server(folder: Path) -> None:
    """As when the power goes: the server and its sessions are gone without a word."""
    server = int((folder / "pid").read_text())
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    doomed, queue = [], [server]
    while queue:
        pid = queue.pop()
        doomed.append(pid)
        queue += children.get(pid, [])
    for pid in doomed:
        os.kill(pid, signal.SIGKILL)


def test_a_network_that_breaks_again_and_again(board, bundle):
    config = Path(board.edgectl.environment["HOME"]) / ".ssh" / "config"
    # 30 MB of runner and packages travel over connections that end after 8 MB each.
    with ToxicProxy(board.sshd.port, Toxics(reset_after=8 << 20)) as proxy:
        config.write_text(config.read_text().replace(str(board.sshd.port), str(proxy.port)))
        line = board.sshd.known_line.replace(str(board.sshd.port), str(proxy.port))
        board.known(board.sshd.known_line + line)
        ended = deploy(board, bundle)
        assert proxy.connections > 2
    assert "trying again" in ended.stderr
    assert "p50" in ended.stdout
    assert board.leftovers == []


def test_a_dry_run_tells_the_bytes_and_changes_nothing(board, bundle):
    first = deploy(board, bundle, "--dry-run", "--json").document["plan"]
    assert first["runtime_bytes"] > 10_000_000
    assert first["payload_bytes"] > 10_000
    assert not board.root.exists()
    deploy(board, bundle)
    second = deploy(board, bundle, "--dry-run", "--json").document["plan"]
    assert (second["runtime_bytes"], second["payload_bytes"]) == (0, 0)
    assert second["already_current"]
