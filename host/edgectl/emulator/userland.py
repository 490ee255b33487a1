"""The file system of the virtual Pi: Debian 12 for arm64, unpacked from its own packages.

No maintainer script runs and no root is needed: apt (with its own state, asking for arm64)
downloads, ``dpkg -x`` unpacks, and the few files that scripts would have made are written here.
That takes well under a minute, where a bootstrap under emulation takes many.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from edgectl.errors import DeviceError

__all__ = ["PACKAGES", "ensure_userland", "need_tools"]

_NAMES = """
base-files base-passwd dash bash coreutils sed grep findutils hostname libc-bin util-linux
procps openssh-server openssh-sftp-server openssh-client libselinux1 libpcre2-8-0 libacl1
libattr1 libaudit1 libcap-ng0 libpam0g libcom-err2 libgssapi-krb5-2 libkrb5-3 libk5crypto3
libkrb5support0 libkeyutils1 libwrap0 libsystemd0 liblz4-1 libzstd1 libgcrypt20 libgpg-error0
libcap2 libmd0 libgmp10 libedit2 libbsd0 libfido2-1 libcbor0.8 libudev1 libproc2-0
libmount1 libblkid1 libsmartcols1 libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8
libssl3 libbz2-1.0 liblzma5 libuuid1 libcrypt1 libnsl2 libtirpc3 libsqlite3-0 libreadline8
libtinfo6 libncursesw6 libdb5.3 libgomp1 python3.11-minimal libpython3.11-minimal
python3.11 libpython3.11-stdlib media-types
"""
PACKAGES = tuple(_NAMES.split())

_TOOLS = {
    "apt-get": "apt",
    "dpkg": "dpkg",
    "proot": "proot",
    "qemu-aarch64-static": "qemu-user-static",
    "ssh-keygen": "openssh-client",
}
# ``pi`` is whoever runs it: an SSH server that is not root lets in only its own user.
_USERS = f"""\
pi:x:{os.geteuid()}:{os.getegid()}:virtual Pi:/home/pi:/bin/bash
root:x:0:0:root:/root:/bin/bash
sshd:x:101:65534::/run/sshd:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
_GROUP = "root:x:0:\nnogroup:x:65534:\n"
_SHADOW = "pi:*:19000::::::\nroot:*:19000::::::\n"
# Bump when what this module writes into the root changes.
_REVISION = "4"


def need_tools() -> None:
    """Looks for the programs of this computer that the virtual Pi stands on.

    Raises:
        DeviceError: some are missing; the message has the command that installs them all.
    """
    missing = sorted({package for tool, package in _TOOLS.items() if shutil.which(tool) is None})
    if missing:
        raise DeviceError(
            f"The virtual Pi needs programs that this computer lacks: {', '.join(missing)}.",
            cause="It is built from Debian packages and runs under qemu and proot.",
            next_step=f"sudo apt-get install {' '.join(missing)}",
        )


def ensure_userland(cache_dir: Path, *, on_step: Callable[[str], None] | None = None) -> Path:
    """The root folder of the virtual Pi, built if it is not there yet.

    A build that was interrupted is thrown away: a root counts only once its mark is written.

    Raises:
        DeviceError: a tool is missing, or the packages cannot be downloaded.
    """
    need_tools()
    key = hashlib.sha256(f"{_REVISION} {' '.join(PACKAGES)} {_USERS}".encode()).hexdigest()[:16]
    folder = cache_dir / "emulator"
    root, mark = folder / f"root-{key}", folder / f"root-{key}.complete"
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "lock"):
        if mark.exists() and (root / "usr/sbin/sshd").exists():
            return root
        if on_step is not None:
            on_step("build the virtual Pi (once)")
        mark.unlink(missing_ok=True)
        shutil.rmtree(root, ignore_errors=True)
        _unpack(root, folder / "apt")
        _finish(root)
        mark.touch()
    return root


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unpack(root: Path, state: Path) -> None:
    debs = state / "debs"
    for part in ("lists/partial", "cache/archives/partial", "debs"):
        (state / part).mkdir(parents=True, exist_ok=True)
    apt = [
        "apt-get",
        "-qq",
        *("-o", "APT::Architecture=arm64"),
        *("-o", "APT::Architectures=arm64"),
        *("-o", f"Dir::State::Lists={state}/lists"),
        *("-o", f"Dir::Cache={state}/cache"),
        *("-o", "Dir::State::status=/dev/null"),
        *("-o", "APT::Sandbox::User=root"),
    ]
    for file in debs.glob("*.deb"):
        file.unlink()
    _run([*apt, "update"], debs)
    _run([*apt, "download", *PACKAGES], debs)
    root.mkdir(parents=True)
    for deb in sorted(debs.glob("*.deb")):
        _run(["dpkg", "-x", str(deb), str(root)], debs)
    shutil.rmtree(debs)


def _run(command: list[str], folder: Path) -> None:
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        words = (run.stderr.strip() or run.stdout.strip()).splitlines()
        raise DeviceError(
            f"The virtual Pi could not be built: {command[0]} says "
            f"{words[-1] if words else 'nothing'}",
            cause="Debian 12's arm64 packages could not be downloaded or unpacked.",
            next_step="Check the network and the disk, then: edgectl emulator up",
        )


def _finish(root: Path) -> None:
    """What the packages' own scripts would have done, as far as it matters here."""
    for name, target in (("bin/sh", "dash"), ("usr/bin/python3", "python3.11")):
        link = root / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    for folder in ("run/sshd", "home/pi/.ssh", "root", "tmp", "etc/ssh", "var/tmp", "dev", "proc"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "home/pi/.ssh").chmod(0o700)
    for name, text in (("passwd", _USERS), ("group", _GROUP), ("shadow", _SHADOW)):
        (root / "etc" / name).write_text(text)
    (root / "etc/hostname").write_text("virtual-pi\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost virtual-pi\n")
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
    (root / "etc/edgectl-emulated").write_text("latency here is not a Pi's\n")
