"""A whole virtual Pi: its own kernel, systemd, sshd, and a card that loses power.

    machine = start(folder, image, spec, identity)      # boots to SSH
    machine.save("fresh"); machine.cut_power(); machine = start(..., snapshot="fresh")

Everything of one machine lies in its folder: ``disk.img`` (the card, see `card`), ``serial.log``,
``snapshots/NAME/`` and ``state.json``. Its sockets lie in a folder with a short name, since a
UNIX socket's may have 107 characters only.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from edgectl.emulator.full.disk import copy_sparse, new_card
from edgectl.emulator.full.image import MachineImage
from edgectl.emulator.full.qmp import Qmp
from edgectl.emulator.processes import alive, free_port, is_sshd
from edgectl.errors import DeviceError, UsageError
from edgectl_toolchains import Target

__all__ = ["Machine", "MachineSpec", "find", "start"]

BOOT_TIMEOUT_S = 300.0
SHUTDOWN_TIMEOUT_S = 90.0
SNAPSHOT_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """The board: ``cpu`` is qemu's name of its core."""

    target: str
    cpu: str
    cores: int
    memory_mb: int

    @classmethod
    def of(cls, target: Target, *, memory_mb: int | None = None) -> MachineSpec:
        """As much of the board as this computer can give it.

        More virtual cores than real ones only wait for each other.

        Raises:
            UsageError: the board does not come with so much memory.
        """
        sizes = target.memory_mb
        if memory_mb is not None and memory_mb not in sizes:
            raise UsageError(
                f"{target.name} does not come with {memory_mb} MB of memory",
                cause=f"it comes with {', '.join(map(str, sizes))} MB",
            )
        usual = 2048 if 2048 in sizes else sizes[0]
        return cls(
            target=target.name,
            cpu=target.cpu,
            cores=min(target.cores, max(2, os.cpu_count() or 2)),
            memory_mb=memory_mb or usual,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine that runs."""

    folder: str
    sockets: str
    spec: MachineSpec
    port: int
    pid: int
    card_pid: int

    @property
    def disk(self) -> Path:
        """The card's image; complete only while the machine is off."""
        return Path(self.folder) / "disk.img"

    def qmp(self) -> Qmp:
        """A connection to its monitor."""
        return Qmp(Path(self.sockets) / "qmp.sock")

    def alive(self) -> bool:
        """Whether it runs (it may be cut off from the network, or busy)."""
        try:
            command = Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except OSError:
            return False
        return self.sockets.encode() in command  # numbers of processes are given again

    def port_answers(self, timeout_s: float = 20.0) -> bool:
        """Whether its sshd says hello."""
        return is_sshd(self.port, timeout_s=timeout_s)

    def shell_words(self, user: str = "root") -> list[str]:
        """``ssh`` to it; a command may follow."""
        folder = Path(self.folder).parent
        return [
            "ssh",
            *("-F", os.devnull, "-i", str(folder / "id_ed25519"), "-p", str(self.port)),
            *("-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30"),
            *("-o", f"UserKnownHostsFile={folder / 'known_hosts'}"),
            f"{user}@127.0.0.1",
        ]

    def run(self, command: str, *, timeout_s: float = 120.0) -> str:
        """What a shell command prints, as root.

        Raises:
            DeviceError: it failed or took too long.
        """
        try:
            done = subprocess.run(
                [*self.shell_words(), command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DeviceError(f"{command!r} took longer than {timeout_s:.0f} s") from error
        if done.returncode != 0:
            raise DeviceError(f"{command!r} failed on the virtual machine: {done.stderr.strip()}")
        return done.stdout

    def shut_down(self) -> None:
        """Ends it as one should; after a while, as one should not."""
        with contextlib.suppress(DeviceError):
            self.run("systemctl poweroff --no-wall", timeout_s=30.0)
        self._wait_gone(SHUTDOWN_TIMEOUT_S)
        self.cut_power()

    def cut_power(self) -> tuple[int, int]:
        """Kills it now; returns (sectors lost, sectors that were not flushed)."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._wait_gone(30.0)
        shutil.rmtree(self.sockets, ignore_errors=True)
        (Path(self.folder) / "state.json").unlink(missing_ok=True)
        try:
            note = json.loads(self.disk.with_name("disk.img.cut").read_text())
        except FileNotFoundError:
            return 0, 0  # it was off already
        return int(note["lost_sectors"]), int(note["unsafe_sectors"])

    def _wait_gone(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for pid in (self.pid, self.card_pid):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)  # where it is a child of ours
            if not alive(self.pid) and not alive(self.card_pid):
                return
            time.sleep(0.05)

    def save(self, name: str) -> None:
        """Keeps the whole machine, memory included; it goes on running."""
        place = Path(self.folder) / "snapshots" / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        with self.qmp() as qmp:
            qmp("stop")  # which flushes, so that the card has nothing in its own memory
            try:
                qmp("migrate-set-parameters", **{"max-bandwidth": 1 << 34})
                qmp("migrate", uri=f"exec:cat > '{place / 'memory.new'}'")
                qmp.wait_for(_migrated, "to be saved", timeout_s=SNAPSHOT_TIMEOUT_S)
                copy_sparse(self.disk, place / "disk.img")
            finally:
                qmp("cont")
        (place / "memory.new").replace(place / "memory")


def start(
    folder: Path,
    image: MachineImage,
    spec: MachineSpec,
    *,
    snapshot: str | None = None,
    rtc_base: str = "utc",
    seed: int | None = None,
) -> Machine:
    """Boots a machine to SSH, or goes on with a snapshot of it.

    Args:
        folder: the machine's own; a new card is made there if it has none. The folder above
            holds ``id_ed25519`` and ``known_hosts``.
        image: what it boots.
        spec: the board.
        snapshot: go on from here instead of booting.
        rtc_base: the clock at the start (``utc``, or a time as ``1970-01-01T00:00:00``).
        seed: for what a power cut takes.

    Raises:
        DeviceError: it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    disk = folder / "disk.img"
    saved = folder / "snapshots" / snapshot if snapshot is not None else None
    if saved is not None:
        if not (saved / "memory").exists():
            raise UsageError(f"there is no snapshot {snapshot!r} of the virtual machine")
        copy_sparse(saved / "disk.img", disk)
    elif not disk.exists():
        new_card(image, disk, folder.parent)
    sockets = Path(tempfile.mkdtemp(prefix="edgectl-vm-"))
    number = seed if seed is not None else random.randrange(1 << 31)  # noqa: S311
    log = (folder / "qemu.log").open("wb")
    port = free_port()
    with log:
        card = subprocess.Popen(
            [sys.executable, "-m", "edgectl.emulator.full.card", str(disk),
             str(sockets / "card.sock"), str(number)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        _wait_for_socket(card.pid, sockets / "card.sock", folder / "qemu.log")
        qemu = subprocess.Popen(
            _qemu(image, spec, sockets, folder, port, rtc_base, saved),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    machine = Machine(
        folder=str(folder),
        sockets=str(sockets),
        spec=spec,
        port=port,
        pid=qemu.pid,
        card_pid=card.pid,
    )
    host_key = (folder / "host_key.pub").read_text().split()
    known = f"[127.0.0.1]:{port} {host_key[0]} {host_key[1]}\n"
    (folder.parent / "known_hosts").write_text(known)
    (folder / "state.json").write_text(json.dumps(asdict(machine)))
    if saved is not None:
        _go_on(machine, folder / "qemu.log")
    _wait_for_ssh(machine, qemu, folder)
    return machine


def find(folder: Path) -> Machine | None:
    """The machine of that folder, if it runs."""
    try:
        state = json.loads((folder / "state.json").read_text())
        machine = Machine(**{**state, "spec": MachineSpec(**state["spec"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return machine if machine.alive() else None


def _qemu(
    image: MachineImage,
    spec: MachineSpec,
    sockets: Path,
    folder: Path,
    port: int,
    rtc_base: str,
    saved: Path | None,
) -> list[str]:
    incoming = [] if saved is None else ["-incoming", f"exec:cat '{saved / 'memory'}'"]
    return [
        "qemu-system-aarch64",
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-M", "virt", "-cpu", spec.cpu, "-smp", str(spec.cores), "-m", str(spec.memory_mb)),
        *("-accel", "tcg,thread=multi", "-rtc", f"base={rtc_base}"),
        *("-kernel", str(image.kernel), "-initrd", str(image.initrd)),
        *("-append", "root=/dev/vda console=ttyAMA0 quiet panic=-1 audit=0"),
        *("-serial", f"file:{folder / 'serial.log'}"),
        "-blockdev",
        f"driver=nbd,node-name=card,server.type=unix,server.path={sockets / 'card.sock'}",
        *("-device", "virtio-blk-device,drive=card"),
        *("-netdev", f"user,id=net0,hostfwd=tcp:127.0.0.1:{port}-:22"),
        *("-device", "virtio-net-device,netdev=net0,id=nic0"),
        *("-device", "virtio-rng-device"),
        *("-qmp", f"unix:{sockets / 'qmp.sock'},server=on,wait=off"),
        *incoming,
    ]


def _go_on(machine: Machine, log: Path) -> None:
    """Waits for a snapshot's memory to be read; it was stopped when it was saved."""
    _wait_for_socket(machine.pid, Path(machine.sockets) / "qmp.sock", log)
    with machine.qmp() as qmp:
        qmp.wait_for(
            lambda q: q("query-status")["status"] != "inmigrate",
            "to read its snapshot",
            timeout_s=SNAPSHOT_TIMEOUT_S,
        )
        qmp("cont")


def _migrated(qmp: Qmp) -> bool:
    answer = qmp("query-migrate")
    if answer.get("status") == "failed":
        raise DeviceError(f"The snapshot failed: {answer.get('error-desc', 'no reason given')}")
    return bool(answer.get("status") == "completed")


def _wait_for_socket(pid: int, path: Path, log: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        if not alive(pid) or time.monotonic() > deadline:
            raise _did_not_start(log)
        time.sleep(0.02)


def _wait_for_ssh(machine: Machine, qemu: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + BOOT_TIMEOUT_S
    while time.monotonic() < deadline:
        if qemu.poll() is not None:
            machine.cut_power()
            raise _did_not_start(folder / "qemu.log")
        if machine.port_answers(timeout_s=5.0):
            return
        time.sleep(0.1)
    machine.cut_power()
    raise DeviceError(
        f"The virtual machine did not answer within {BOOT_TIMEOUT_S:.0f} s.",
        cause="This computer is very busy, or the machine does not boot.",
        next_step=f"Read {folder / 'serial.log'}, then: edgectl emulator up --full",
    )


def _did_not_start(log: Path) -> DeviceError:
    words = log.read_text(errors="replace").strip().splitlines()
    return DeviceError(
        f"The virtual machine ended as it started: {words[-1] if words else 'without a word'}",
        cause="qemu does not work on this computer as it is set up, or its disk is full.",
        next_step=f"Read {log}",
    )
