"""Starts, finds and ends the virtual Pi: an aarch64 sshd under proot and qemu-user.

proot needs neither root nor binfmt, so it works the same for everybody, in containers too. Its
keys live in edgectl's state folder; the user's own ``~/.ssh`` is never touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgectl.emulator.board import board_files
from edgectl.emulator.processes import alive, free_port, is_sshd
from edgectl.emulator.syscalls import refuse_unknown_calls
from edgectl.emulator.userland import ensure_userland
from edgectl.errors import DeviceError, UsageError
from edgectl.settings import Settings, load_settings
from edgectl_toolchains import Target, UnknownTargetError, load_target

if TYPE_CHECKING:
    from edgectl.remote.ssh_options import SshOptions

__all__ = ["EmulatorInfo", "connect_options", "down", "shell_command", "status", "up"]

_START_TIMEOUT_S = 60.0
_SSHD_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /home/pi/.ssh/authorized_keys
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
PrintMotd no
LogLevel ERROR
MaxStartups 100
MaxSessions 100
SetEnv EDGECTL_EMULATED=1 LANG=C.UTF-8 QEMU_CPU={cpu}
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorInfo:
    """A virtual Pi that answers; a ``full`` one is a machine with its own kernel."""

    target: str
    port: int
    pid: int
    root: str
    user: str = "pi"
    full: bool = False


def up(
    target: str = "rpi4",
    *,
    full: bool | None = None,
    memory_mb: int | None = None,
    snapshot: str | None = None,
    settings: Settings | None = None,
    on_step: Callable[[str], None] | None = None,
) -> EmulatorInfo:
    """Starts the virtual Pi (building it first if need be); one that already runs is kept.

    Args:
        target: the board.
        full: a machine with its own kernel (see `edgectl.emulator.full`), or not; ``None``:
            whichever runs, else not.
        memory_mb: of a full one.
        snapshot: of a full one, to go on from.
        settings: where it lies.
        on_step: told what is going on.

    Raises:
        UsageError: there is no such board, or it is no Pi.
        DeviceError: it cannot be built or does not start.
    """
    settings = settings or load_settings()
    board = _board(target)
    running = status(settings=settings)
    if running is not None:
        same = running.target == target and full in (None, running.full)
        if same and snapshot is None and memory_mb is None:
            return running
        down(settings=settings)
    if full:
        return _full_up(board, memory_mb, snapshot, settings, on_step)
    root = ensure_userland(settings.cache_dir, on_step=on_step)
    folder = _folder(settings)
    _keys(folder, root)
    port = free_port()
    (root / "etc/ssh/sshd_config").write_text(_SSHD_CONFIG.format(port=port, cpu=board.cpu))
    if on_step is not None:
        on_step("start the virtual Pi")
    log = (folder / "sshd.log").open("wb")
    with log:
        process = subprocess.Popen(
            [*_enter(root, board, folder), "/usr/sbin/sshd", "-D", "-e"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(board),
            cwd="/",
            start_new_session=True,
            preexec_fn=refuse_unknown_calls,
        )
    info = EmulatorInfo(target=target, port=port, pid=process.pid, root=str(root))
    _wait(process, port, folder / "sshd.log")
    host_key = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()
    known = f"[127.0.0.1]:{port} {host_key[0]} {host_key[1]}\n"
    (folder / "known_hosts").write_text(known)
    _remember(info, folder)
    return info


def _remember(info: EmulatorInfo, folder: Path) -> None:
    state = folder / "state.json"
    state.with_suffix(".new").write_text(json.dumps(asdict(info)))
    state.with_suffix(".new").replace(state)


def _full_up(
    board: Target,
    memory_mb: int | None,
    snapshot: str | None,
    settings: Settings,
    on_step: Callable[[str], None] | None,
) -> EmulatorInfo:
    from edgectl.emulator import full

    machine = full.up(
        board, settings=settings, memory_mb=memory_mb, snapshot=snapshot, on_step=on_step
    )
    (_folder(settings) / "ssh_config").touch()
    info = EmulatorInfo(
        target=board.name, port=machine.port, pid=machine.pid, root=machine.folder, full=True
    )
    _remember(info, _folder(settings))
    return info


def down(*, settings: Settings | None = None) -> bool:
    """Ends the virtual Pi and everything that runs on it; whether there was one."""
    settings = settings or load_settings()
    info = status(settings=settings)
    (_folder(settings) / "state.json").unlink(missing_ok=True)
    if info is None:
        return False
    if info.full:
        from edgectl.emulator import full

        machine = full.find(full.machine_folder(settings))
        if machine is not None:
            machine.shut_down()
        return True
    _end(info.pid)
    return True


def status(*, settings: Settings | None = None) -> EmulatorInfo | None:
    """The virtual Pi that runs, or ``None``; a record that a crash left behind counts as none."""
    settings = settings or load_settings()
    try:
        info = EmulatorInfo(**json.loads((_folder(settings) / "state.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
    if info.full:
        from edgectl.emulator import full

        return info if full.find(full.machine_folder(settings)) is not None else None
    return info if alive(info.pid) and is_sshd(info.port) else None


def connect_options(
    info: EmulatorInfo, *, settings: Settings | None = None
) -> tuple[str, SshOptions]:
    """Destination and options for `edgectl.remote.ssh.connect`, with the key that it must have."""
    from edgectl.remote.ssh_options import SshOptions

    folder = _folder(settings or load_settings())
    options = SshOptions(
        identity_file=folder / "id_ed25519",
        known_hosts_file=folder / "known_hosts",
        config_file=folder / "ssh_config",  # empty: the user's own settings are not for it
        system_config_file=folder / "ssh_config",
        agent_socket=None,
        home=folder,
        emulated=True,
        # An emulated machine on a busy computer answers late, not never.
        connect_timeout_s=30.0,
        banner_timeout_s=60.0,
        auth_timeout_s=60.0,
        channel_timeout_s=60.0,
    )
    return f"{info.user}@127.0.0.1:{info.port}", options


def shell_command(info: EmulatorInfo, *, settings: Settings | None = None) -> list[str]:
    """The ``ssh`` command that opens a shell on it."""
    folder = _folder(settings or load_settings())
    return [
        "ssh",
        *("-F", os.devnull),
        *("-i", str(folder / "id_ed25519")),
        *("-o", f"UserKnownHostsFile={folder / 'known_hosts'}"),
        *("-o", "StrictHostKeyChecking=yes"),
        *("-p", str(info.port)),
        f"{info.user}@127.0.0.1",
    ]


def _board(name: str) -> Target:
    try:
        board = load_target(name)
    except UnknownTargetError as error:
        raise UsageError(
            f"There is no target {name!r}.",
            cause=f"Known targets are {', '.join(error.known)}.",
            next_step="edgectl targets",
        ) from error
    if board.architecture != "aarch64":
        raise UsageError(
            f"{name} is not a Raspberry Pi, so there is no virtual one of it.",
            next_step="edgectl emulator up --target rpi4",
        )
    return board


def _folder(settings: Settings) -> Path:
    return settings.state_dir / "emulator"


def _keys(folder: Path, root: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    (folder / "ssh_config").touch()
    for path in (folder / "id_ed25519", root / "etc/ssh/ssh_host_ed25519_key"):
        if not path.exists():
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "edgectl virtual Pi"]
            subprocess.run([*command, "-f", str(path)], check=True, capture_output=True)
    public = (folder / "id_ed25519.pub").read_text()
    authorized = root / "home/pi/.ssh/authorized_keys"
    authorized.write_text(public)
    authorized.chmod(0o600)


def _enter(root: Path, board: Target, folder: Path) -> list[str]:
    binds = ["/proc", "/dev", "/sys"]
    binds += [f"{file}:{path}" for file, path in board_files(board, folder / "board").items()]
    command = ["proot", "-q", "qemu-aarch64-static", "-r", str(root), "-w", "/"]
    for bind in binds:
        command += ["-b", bind]
    return command


def _environment(board: Target) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin",
        "HOME": "/home/pi",
        "QEMU_CPU": board.cpu,
        "EDGECTL_EMULATED": "1",
        # proot's own tracing filter is not understood under some kernels' seccomp.
        "PROOT_NO_SECCOMP": "1",
    }


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            words = log.read_text(errors="replace").strip().splitlines()
            raise DeviceError(
                f"The virtual Pi ended as it started: {words[-1] if words else 'without a word'}",
                cause="proot or qemu does not work on this computer as it is set up.",
                next_step=f"Read {log}; a container may have to allow ptrace.",
            )
        if is_sshd(port):
            return
        time.sleep(0.1)
    _end(process.pid)
    raise DeviceError(
        f"The virtual Pi did not answer within {_START_TIMEOUT_S:.0f} s.",
        cause="This computer is very busy, or qemu hangs.",
        next_step="edgectl emulator up",
    )


def _end(pid: int) -> None:
    """Ends proot and whatever it traces; sessions are process groups of their own."""
    members = [pid, *_traced_by(pid)]
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, sign)
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # where it is a child of ours
            if not any(alive(member) for member in members):
                return
            time.sleep(0.05)


def _traced_by(pid: int) -> list[int]:
    traced = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if f"\nTracerPid:\t{pid}\n" in (entry / "status").read_text():
                    traced.append(int(entry.name))
    return traced
