"""Gets a device ready: the runner's own sources and its Python packages, sent when they lack.

Both folders on the device are named by what is in them. So a second deployment sends nothing,
and an upgrade stands beside the old version, which may still be at work.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from edgectl.errors import ConnectionFailedError, DeviceError, EdgectlError
from edgectl.remote.agent_calls import RunnerHandle, call_runner, read_answer
from edgectl.remote.bandwidth import limited
from edgectl.remote.base import PARTIAL_SUFFIX, Device, Progress
from edgectl.remote.wheelhouse import DevicePython, Wheel, WheelSet, fetch_wheels

__all__ = ["RunnerHandle", "find_runner", "pack_runner", "plan_preparation", "prepare_device"]

# Runs on the device with nothing but its Python. Prints what decides about packages and what is
# there. The root is found as `edgectl_runner.store.default_root` finds it.
_LOOK = """
import json, os, platform, sys, sysconfig
root = os.environ.get("EDGECTL_ROOT") or os.path.join(os.environ.get("XDG_DATA_HOME")
    or os.path.join(os.path.expanduser("~"), ".local", "share"), "edgectl")
def names(folder, mark):
    try:
        entries = [e for e in os.scandir(os.path.join(root, folder))
            if not e.name.startswith(".") and os.path.exists(os.path.join(e.path, mark))]
    except OSError:
        return []
    return [e.name for e in sorted(entries, key=lambda e: -e.stat().st_mtime)]
def sizes():
    try:
        return {e.name: e.stat().st_size for e in os.scandir(os.path.join(root, "incoming"))}
    except OSError:
        return {}
try:
    libc = os.confstr("CS_GNU_LIBC_VERSION")
except (ValueError, OSError, AttributeError):
    libc = None
print(json.dumps({"root": root, "python": list(sys.version_info[:3]),
    "implementation": sys.implementation.name, "machine": platform.machine(),
    "bits": 64 if sys.maxsize > 2**32 else 32, "libc": libc,
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "runners": names("runner", "edgectl_runner/__main__.py"), "envs": names("env", ".complete"),
    "incoming": sizes()}))
"""

# Runs on the device before there is a runner: unpacks its sources from standard input.
_UNPACK = """
import hashlib, io, json, os, shutil, sys, uuid, zipfile
root, digest, expected = sys.argv[1:]
data = sys.stdin.buffer.read()
if hashlib.sha256(data).hexdigest() != expected:
    print(json.dumps({"error": {"code": 7, "message": "the runner arrived damaged",
        "cause": "bytes were changed on the way", "next_step": "run the command again"}}))
    sys.exit(7)
folder = os.path.join(root, "runner")
target = os.path.join(folder, digest)
temporary = os.path.join(folder, ".tmp-" + digest + "-" + uuid.uuid4().hex[:12])
def flush(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
try:
    for name in ("runner", "incoming"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(temporary)
    for place, _, names in os.walk(temporary, topdown=False):
        for name in names:
            flush(os.path.join(place, name))
        flush(place)
    try:
        os.rename(temporary, target)
    except OSError:
        # Somebody else was quicker with the same files, or a damaged folder is in the way.
        if not os.path.exists(os.path.join(target, "edgectl_runner", "__main__.py")):
            shutil.rmtree(target)
            os.rename(temporary, target)
    for path in (folder, root):
        flush(path)
except OSError as error:
    print(json.dumps({"error": {"code": 7, "message": "the runner cannot be installed in "
        + root + ": " + str(error), "cause": "the disk is full, read-only, or not yours",
        "next_step": "free some space, or set EDGECTL_ROOT on the device"}}))
    sys.exit(7)
finally:
    shutil.rmtree(temporary, ignore_errors=True)
print(json.dumps({"installed": digest}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerArchive:
    """The runner's sources as a ZIP; ``digest`` is that of the files, not of the archive."""

    digest: str
    data: bytes


def pack_runner() -> RunnerArchive:
    """The runner's source files; the same files give the same bytes on every computer."""
    members = sorted(_members(files("edgectl_runner"), "edgectl_runner"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            # A fixed date: zipfile would put the file's own in, which differs by installation.
            archive.writestr(zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0)), data)
    listing = "\n".join(f"{name} {hashlib.sha256(data).hexdigest()}" for name, data in members)
    digest = hashlib.sha256(listing.encode()).hexdigest()[:16]
    return RunnerArchive(digest=digest, data=buffer.getvalue())


def _members(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        name = f"{prefix}/{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                found += _members(entry, name)
        elif not entry.name.endswith((".pyc", ".pyi")):
            found.append((name, entry.read_bytes()))
    return found


def prepare_device(
    device: Device,
    facts: object = None,  # noqa: ARG001 - see below
    *,
    python: str = "python3",
    who: str = "",
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    bytes_per_s: float | None = None,
    fetch: Callable[..., WheelSet] = fetch_wheels,
) -> RunnerHandle:
    """Makes sure that the runner and its packages are on the device.

    Args:
        device: where.
        facts: what is known about it already. Not needed today: what decides about packages is
            asked of the very interpreter that will use them.
        python: the interpreter's name or path there (3.11 to 3.13).
        who: noted in the device's audit log.
        cache_dir: where wheels are kept on this computer.
        progress: told about the bytes of packages that travel.
        bytes_per_s: send no faster than that.
        fetch: gets the wheels for the device's Python.

    Raises:
        DeviceError: no usable Python, a 32-bit system, no wheels, no room.
        ConnectionFailedError: the connection broke; what had arrived is used next time.
    """
    there = _look(device, python)
    kind = _device_python(device, there)
    # Before anything is changed there: without wheels the runner would be of no use.
    wheels = fetch(kind, cache=cache_dir)
    archive = pack_runner()
    root = str(there["root"])
    sent = 0
    if archive.digest not in there["runners"]:
        checksum = hashlib.sha256(archive.data).hexdigest()
        result = device.run(
            [python, "-c", _UNPACK, root, archive.digest, checksum],
            stdin=archive.data,
            timeout_s=120.0,
        )
        read_answer(device, result, what="the answer to installing the runner")
        sent += len(archive.data)
    handle = RunnerHandle(
        root=root,
        python=python,
        python_version=kind.version,
        machine=kind.machine,
        argv=_argv(root, python, archive.digest, wheels.digest),
        runner_digest=archive.digest,
        environment_digest=wheels.digest,
        bytes_sent=0,
    )
    if wheels.digest not in there["envs"]:
        sent += _send_wheels(
            device, handle, wheels, there["incoming"], who, limited(progress, bytes_per_s)
        )
    return RunnerHandle(
        **{name: getattr(handle, name) for name in handle.__slots__ if name != "bytes_sent"},
        bytes_sent=sent,
    )


def plan_preparation(
    device: Device,
    *,
    python: str = "python3",
    cache_dir: Path | None = None,
    fetch: Callable[..., WheelSet] = fetch_wheels,
) -> tuple[RunnerHandle | None, int]:
    """What `prepare_device` would send, in bytes; changes nothing on the device.

    Also the runner that is there already, which can say what a bundle needs; ``None`` if it or
    its packages are not there yet.

    Raises:
        DeviceError: as `prepare_device`.
    """
    there = _look(device, python)
    kind = _device_python(device, there)
    wheels = fetch(kind, cache=cache_dir)
    archive = pack_runner()
    missing = 0
    if archive.digest not in there["runners"]:
        missing += len(archive.data)
    if wheels.digest not in there["envs"]:
        missing += sum(wheel.size_bytes for wheel in wheels.wheels)
    if missing:
        return None, missing
    return find_runner(device, python=python), 0


def find_runner(device: Device, *, python: str = "python3") -> RunnerHandle:
    """The runner that is on the device already, of whatever version; installs nothing.

    For `edgectl status`, `rollback` and the like, which must work without the internet and must
    not change what is installed. Prefers this edgectl's own version, then the newest.

    Raises:
        DeviceError: there is none.
    """
    there = _look(device, python)
    own = pack_runner().digest
    runners, environments = list(there["runners"]), list(there["envs"])
    if not runners:
        raise DeviceError(
            f"nothing of edgectl is installed on {device.label} (in {there['root']})",
            next_step="deploy a model first",
        )
    runner = own if own in runners else runners[0]
    environment = environments[0] if environments else ""
    return RunnerHandle(
        root=str(there["root"]),
        python=python,
        python_version=(int(there["python"][0]), int(there["python"][1])),
        machine=str(there["machine"]),
        argv=_argv(str(there["root"]), python, runner, environment),
        runner_digest=runner,
        environment_digest=environment,
        bytes_sent=0,
    )


def _argv(root: str, python: str, runner: str, environment: str) -> tuple[str, ...]:
    return (
        "env",
        f"PYTHONPATH={root}/runner/{runner}:{root}/env/{environment}",
        f"EDGECTL_ROOT={root}",
        # A Pi's /tmp may be a small RAM disk.
        f"TMPDIR={root}/incoming",
        "PYTHONNOUSERSITE=1",
        python,
        # Without -P a numpy.py in the home folder would be imported in place of NumPy.
        "-P",
        "-m",
        "edgectl_runner",
    )


def _look(device: Device, python: str) -> dict[str, Any]:
    result = device.run([python, "-c", _LOOK], timeout_s=60.0)
    if result.exit_code in (126, 127):
        raise DeviceError(
            f"{device.label} has no {python}",
            cause="the runner needs Python 3.11, 3.12 or 3.13 on the device",
            next_step="install it there (sudo apt install python3), or name one with --python",
        )
    there = read_answer(device, result, what="what the device's Python says about itself")
    if not {"root", "python", "machine", "runners", "envs", "incoming"} <= there.keys():
        raise DeviceError(f"{device.label}: {python} did not describe itself")
    return there


def _device_python(device: Device, there: dict[str, Any]) -> DevicePython:
    if there.get("bits") != 64:
        raise DeviceError(
            f"{device.label} runs a 32-bit userland (machine {there['machine']})",
            cause="the IREE runtime exists for 64-bit systems only; Raspberry Pi OS comes in both",
            next_step="install the 64-bit Raspberry Pi OS on the device",
        )
    if there.get("implementation") != "cpython":
        raise DeviceError(
            f"{device.label}: its Python is {there.get('implementation')}, not CPython",
            next_step="name another interpreter with --python",
        )
    if there.get("free_threaded"):
        raise DeviceError(
            f"{device.label}: its Python is a free-threaded build",
            cause="the IREE runtime has wheels for the ordinary build only",
            next_step="name another interpreter with --python",
        )
    libc = str(there.get("libc") or "").split()
    if len(libc) != 2 or libc[0] != "glibc":
        raise DeviceError(
            f"{device.label} has no GNU C library",
            cause="the IREE runtime's wheels need glibc 2.28 or newer",
            next_step="use Raspberry Pi OS, Debian or Ubuntu on the device",
        )
    major, minor = (int(part) for part in libc[1].split(".")[:2])
    return DevicePython(
        version=(int(there["python"][0]), int(there["python"][1])),
        machine=str(there["machine"]),
        glibc=(major, minor),
    )


def _send_wheels(
    device: Device,
    handle: RunnerHandle,
    wheels: WheelSet,
    incoming: dict[str, int],
    who: str,
    progress: Progress | None,
) -> int:
    total = sum(w.size_bytes for w in wheels.wheels)
    done = sent = 0
    names = [f"{w.sha256[:16]}-{w.path.name}" for w in wheels.wheels]
    try:
        for wheel, name in zip(wheels.wheels, names, strict=True):
            report = None if progress is None else _shifted(progress, done, total)
            sent += _send_wheel(device, handle, wheel, name, _arrived(incoming, name), report)
            done += wheel.size_bytes
        call_runner(
            device,
            handle,
            "install-env",
            {
                "digest": wheels.digest,
                "who": who,
                "wheels": [
                    {"name": name, "sha256": w.sha256}
                    for name, w in zip(names, wheels.wheels, strict=True)
                ],
            },
            timeout_s=600.0,
        )
    except ConnectionFailedError:
        raise  # what arrived stays there, so that the next attempt goes on from it
    except (EdgectlError, KeyboardInterrupt):
        with contextlib.suppress(EdgectlError):
            call_runner(device, handle, "discard", {"names": names}, timeout_s=30.0)
        raise
    return sent


def _arrived(incoming: dict[str, int], name: str) -> int:
    return incoming.get(name, incoming.get(name + PARTIAL_SUFFIX, 0))


def _send_wheel(
    device: Device,
    handle: RunnerHandle,
    wheel: Wheel,
    name: str,
    there: int,
    progress: Progress | None,
) -> int:
    if there >= wheel.size_bytes:
        return 0
    return device.put(wheel.path, f"{handle.incoming}/{name}", offset=there, progress=progress)


def _shifted(progress: Progress, base: int, total: int) -> Progress:
    return lambda done, _: progress(base + done, total)
