"""Gets the supervisor running and ends it: by systemd where there is one, else as a process.

A device whose user has a systemd manager gets a user unit (and lingering, so that it starts at
boot); root gets a system unit; where there is no systemd the supervisor is a process of its own,
which does not survive a reboot, and the answer says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

from edgectl_runner.durable import make_directories, write_durably
from edgectl_runner.failures import DEVICE, RunnerError
from edgectl_runner.service.places import Places, read_state
from edgectl_runner.service.unit import UnitOptions, render_unit
from edgectl_runner.store import default_root

__all__ = ["Manager", "find_manager", "logs", "running_pid", "start", "stop", "unit_name"]

Manager = Literal["user-unit", "system-unit", "process"]
COMMAND_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 45.0
MAX_LOG_BYTES = 1 << 20


def find_manager(*, use_systemd: bool) -> Manager:
    """What can run the service here."""
    if not use_systemd or not Path("/run/systemd/system").is_dir():
        return "process"
    if os.getuid() == 0:
        return "system-unit"
    return "user-unit" if _systemctl("user-unit", "show-environment", check=False) else "process"


def unit_name(root: Path) -> str:
    """One unit per root folder."""
    if root == default_root({k: v for k, v in os.environ.items() if k != "EDGECTL_ROOT"}):
        return "edgectl.service"
    return f"edgectl-{root.name}-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}.service"


def running_pid(places: Places) -> int | None:
    """The supervisor's process, if it runs: the kernel's lock decides, not a number in a file."""
    try:
        descriptor = os.open(places.lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        state = read_state(places)
        return int(state["pid"]) if state is not None else None
    finally:
        os.close(descriptor)
    return None


def start(
    places: Places, manager: Manager, *, reachable: bool, memory_max_bytes: int | None
) -> None:
    """Starts the supervisor, or tells a running one to take the next configuration."""
    pid = running_pid(places)
    command = (sys.executable, "-P", "-m", "edgectl_runner.service.supervisor", str(places.root))
    if manager == "process":
        if pid is not None:
            os.kill(pid, signal.SIGHUP)
            return
        _spawn(places, command)
        return
    options = UnitOptions(
        root=places.root,
        command=command,
        environment={
            k: os.environ[k]
            for k in ("PYTHONPATH", "EDGECTL_ROOT", "EDGECTL_EMULATED", "PYTHONNOUSERSITE")
            if k in os.environ
        },
        user_name=None if manager == "user-unit" else "root",
        memory_max_bytes=memory_max_bytes,
        reachable=reachable,
    )
    path = _unit_path(places, manager)
    make_directories(path.parent)
    write_durably(path, render_unit(options).encode(), mode=0o644)
    _systemctl(manager, "daemon-reload")
    _systemctl(manager, "enable", path.name)
    if manager == "user-unit":
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                ["loginctl", "enable-linger"], check=False, timeout=30, capture_output=True
            )
    if pid is not None:
        os.kill(pid, signal.SIGHUP)
    else:
        _systemctl(manager, "start", "--no-block", path.name)


def stop(places: Places, manager: Manager) -> bool:
    """Ends the service after what it has accepted; whether it ran."""
    pid = running_pid(places)
    path = _unit_path(places, manager)
    if manager != "process" and path.exists():
        _systemctl(manager, "disable", "--now", path.name)
        path.unlink(missing_ok=True)
        _systemctl(manager, "daemon-reload")
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while running_pid(places) is not None:
        if time.monotonic() > deadline:
            raise RunnerError(
                f"the service (process {pid}) did not end within {STOP_TIMEOUT_S:.0f} s",
                code=DEVICE,
                next_step="look at 'edgectl serve logs', then stop it again",
            )
        time.sleep(0.05)
    return True


def logs(places: Places, manager: Manager, last: int) -> list[str]:
    """The newest lines of the service's log."""
    if manager == "process":
        try:
            text = places.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return text.splitlines()[-last:]
    scope = ["--user"] if manager == "user-unit" else []
    result = subprocess.run(
        ["journalctl", *scope, "-u", unit_name(places.root), "-n", str(last), "--no-pager"],
        check=False,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    return result.stdout.splitlines()


def _spawn(places: Places, command: tuple[str, ...]) -> None:
    if places.log.exists() and places.log.stat().st_size > MAX_LOG_BYTES:
        places.log.unlink()
    with places.log.open("ab") as log:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )


def _unit_path(places: Places, manager: Manager) -> Path:
    folder = (
        Path("/etc/systemd/system")
        if manager == "system-unit"
        else Path.home() / ".config" / "systemd" / "user"
    )
    return folder / unit_name(places.root)


def _systemctl(manager: Manager, *words: str, check: bool = True) -> bool:
    scope = ["--user"] if manager == "user-unit" else []
    try:
        result = subprocess.run(
            ["systemctl", *scope, *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if not check:
            return False
        raise RunnerError(f"systemctl could not be run: {error}") from error
    if result.returncode != 0 and check:
        raise RunnerError(
            f"systemctl {' '.join(words)} failed: {result.stderr.strip()[:300]}",
            next_step="edgectl serve logs",
        )
    return result.returncode == 0
