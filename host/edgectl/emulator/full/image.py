"""The disk of the virtual machine: Debian 12 for arm64 with its own kernel, systemd and sshd.

Everything is unpacked and written on this computer, nothing runs under emulation, and no root is
needed: ``mke2fs -d`` fills the ext4 image from a folder. That takes about a minute, where a
bootstrap with emulated maintainer scripts took 22.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgectl.emulator.full.initrd import MODULES, make_initrd
from edgectl.emulator.full.packages import fetch, run_tool, unpack
from edgectl.errors import DeviceError

__all__ = ["MachineImage", "ensure_image"]

DISK_BYTES = 2 << 30
PI_ID = 1000

_PACKAGES = """
linux-image-cloud-arm64 busybox-static base-files base-passwd bash dash coreutils sed grep
findutils hostname util-linux mount procps kmod systemd systemd-sysv udev iproute2 e2fsprogs
openssh-server openssh-sftp-server python3 libgomp1 libstdc++6 libc-bin tzdata netbase
"""
# Pulled in by dependencies and by package scripts, of no use to what runs here.
_SKIP = ("perl", "libperl", "initramfs", "klibc", "libklibc", "linux-base", "ucf", "usrmerge",
         "debconf", "linux-image-cloud", "dpkg", "libfile-find", "libtext-glob",
         "libnumber-compare", "adduser", "cpio")  # fmt: skip
_TOOLS = {
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "tar": "tar",
    "mke2fs": "e2fsprogs",
    "debugfs": "e2fsprogs",
    "ssh-keygen": "openssh-client",
    "qemu-system-aarch64": "qemu-system-arm",
}
_PASSWD = f"""\
root:x:0:0:root:/root:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
sshd:x:101:65534::/run/sshd:/usr/sbin/nologin
systemd-network:x:102:102::/run/systemd:/usr/sbin/nologin
pi:x:{PI_ID}:{PI_ID}:virtual Pi:/home/pi:/bin/bash
"""
_GROUPS = f"systemd-journal:x:101:\nsystemd-network:x:102:\ninput:x:103:\nsgx:x:104:\n\
kvm:x:105:\nrender:x:106:\npi:x:{PI_ID}:\n"
_SHADOW = "root:*:19000::::::\npi:*:19000::::::\n"
_SSHD = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 100
MaxSessions 100
SetEnv EDGECTL_EMULATED=1 LANG=C.UTF-8
Subsystem sftp internal-sftp
"""
_NETWORK = """\
[Match]
Name=eth0 en*
[Network]
Address=10.0.2.15/24
Gateway=10.0.2.2
DNS=10.0.2.3
LinkLocalAddressing=no
IPv6AcceptRA=no
"""
# Each costs seconds of boot under emulation and does nothing that a test looks at.
_MASKED = (
    "ldconfig.service", "systemd-hwdb-update.service", "systemd-journal-catalog-update.service",
    "systemd-sysusers.service", "systemd-update-done.service", "systemd-firstboot.service",
    "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service", "getty.target",
    "systemd-network-generator.service", "systemd-networkd-wait-online.service",
    "systemd-networkd-persistent-storage.service", "systemd-pcrphase.service",
    "systemd-machine-id-commit.service", "e2scrub_reap.service", "e2scrub_all.timer",
    "fstrim.timer", "modprobe@.service", "kmod-static-nodes.service",
    "systemd-modules-load.service", "apt-daily.timer", "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
    "dev-hugepages.mount", "dev-mqueue.mount", "systemd-rfkill.socket", "systemd-binfmt.service",
    "proc-sys-fs-binfmt_misc.automount", "systemd-logind.service",
)  # fmt: skip
_REVISION = "1"
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"  # not in everybody's


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineImage:
    """What qemu boots: the kernel, its RAM disk, and a disk image that is copied, never changed."""

    kernel: Path
    initrd: Path
    disk: Path


def need_tools() -> None:
    """Looks for the programs that the virtual machine stands on.

    Raises:
        DeviceError: some are missing; the message has the command that installs them all.
    """
    missing = sorted({p for tool, p in _TOOLS.items() if shutil.which(tool, path=_PATH) is None})
    if missing:
        raise DeviceError(
            f"The virtual machine needs programs that this computer lacks: {', '.join(missing)}.",
            cause="It is built from Debian packages and runs under qemu.",
            next_step=f"sudo apt-get install --no-install-recommends {' '.join(missing)}",
        )


def ensure_image(cache_dir: Path, *, on_step: Callable[[str], None] | None = None) -> MachineImage:
    """The image, built if it is not there yet; an interrupted build is thrown away.

    Raises:
        DeviceError: a tool is missing, or the packages cannot be downloaded.
    """
    need_tools()
    recipe = repr((_REVISION, _PACKAGES, _SKIP, _PASSWD, _SSHD, _NETWORK, _MASKED, MODULES))
    key = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    folder = cache_dir / "emulator" / f"full-{key}"
    image = MachineImage(
        kernel=folder / "vmlinuz", initrd=folder / "initrd", disk=folder / "disk.img"
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            _build(folder, image, on_step or (lambda _: None))
            (folder / "complete").touch()
    return image


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(folder: Path, image: MachineImage, say: Callable[[str], None]) -> None:
    say("fetch Debian's arm64 packages (once)")
    debs = fetch(_PACKAGES.split(), _SKIP, folder / "apt")
    say("unpack the virtual machine")
    kernel, root = folder / "kernel", folder / "root"
    for place in (kernel, root):
        place.mkdir()
    for name in ("bin", "sbin", "lib"):  # Debian 12 has them merged into usr
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    is_kernel = [deb.name.startswith("linux-image") for deb in debs]
    unpack([d for d, k in zip(debs, is_kernel, strict=True) if k], kernel)
    unpack([d for d, k in zip(debs, is_kernel, strict=True) if not k], root)
    shutil.copy(next(kernel.glob("boot/vmlinuz-*")), image.kernel)
    image.initrd.write_bytes(make_initrd(kernel, root / "usr/bin/busybox"))
    _configure(root)
    say("make its disk")
    _make_disk(root, image.disk)
    for place in (kernel, root, folder / "apt"):
        shutil.rmtree(place)


def _configure(root: Path) -> None:
    """What the packages' own scripts would have done, as far as it matters here."""
    etc = root / "etc"
    for name in ("run", "proc", "sys", "dev", "tmp", "root/.ssh", "home/pi/.ssh", "var/tmp",
                 "var/log/journal", "etc/ssh", "etc/systemd/network"):  # fmt: skip
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    master = root / "usr/share/base-passwd/group.master"
    groups = "".join(
        f"{name}:x:{number}:\n"
        for name, _, number, *_ in (line.split(":") for line in master.read_text().splitlines())
    )
    texts = {
        "passwd": _PASSWD,
        "group": groups + _GROUPS,
        "shadow": _SHADOW,
        "hostname": "virtual-pi\n",
        "hosts": "127.0.0.1 localhost virtual-pi\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "resolv.conf": "nameserver 10.0.2.3\n",
        "fstab": "/dev/vda / ext4 defaults,noatime 0 0\n",
        "machine-id": hashlib.md5(b"virtual-pi", usedforsecurity=False).hexdigest() + "\n",
        "ssh/sshd_config": _SSHD,
        "systemd/network/10-eth.network": _NETWORK,
        "edgectl-emulated": "latency here is not a Pi's\n",
    }
    for name, text in texts.items():
        (etc / name).unlink(missing_ok=True)
        (etc / name).write_text(text)
    for link, target in {"usr/bin/sh": "dash", "usr/bin/python3": "python3.11"}.items():
        (root / link).unlink(missing_ok=True)
        (root / link).symlink_to(target)
    units, wants = etc / "systemd/system", etc / "systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    for unit in _MASKED:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    links = {
        units / "default.target": "/lib/systemd/system/multi-user.target",
        wants / "ssh.service": "/lib/systemd/system/ssh.service",
        wants / "systemd-networkd.service": "/lib/systemd/system/systemd-networkd.service",
    }
    for path, place in links.items():
        path.unlink(missing_ok=True)
        path.symlink_to(place)
    # "Nothing was updated since": otherwise systemd rebuilds its caches at the first start.
    now = time.time() + 3600
    for name in ("etc/.updated", "var/.updated"):
        (root / name).touch()
        os.utime(root / name, (now, now))


def _make_disk(root: Path, disk: Path) -> None:
    partial = disk.with_suffix(".new")
    with partial.open("wb") as file:
        file.truncate(DISK_BYTES)
    # In a user namespace of one's own, files of this user count as root's.
    as_root = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    mke2fs, debugfs = (shutil.which(t, path=_PATH) or t for t in ("mke2fs", "debugfs"))
    run_tool(
        [*as_root, mke2fs, "-q", "-t", "ext4", "-d", str(root), "-L", "virtual-pi",
         "-E", "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0", str(partial)],
        disk.parent,
    )  # fmt: skip
    for place in ("/home/pi", "/home/pi/.ssh"):
        for field in ("uid", "gid"):
            run_tool(
                [debugfs, "-w", "-R", f"sif {place} {field} {PI_ID}", str(partial)], disk.parent
            )
    partial.replace(disk)
