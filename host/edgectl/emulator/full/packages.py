"""Fetches Debian 12's arm64 packages and unpacks them, without root and without their scripts."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from edgectl.errors import DeviceError

__all__ = ["fetch", "run_tool", "unpack"]


def fetch(names: Sequence[str], skip: Sequence[str], folder: Path) -> list[Path]:
    """Downloads packages and all they depend on, except what begins with one of ``skip``.

    Raises:
        DeviceError: apt cannot.
    """
    for part in ("lists/partial", "cache/archives/partial", "debs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    debs = folder / "debs"
    apt = [
        "apt-get",
        "-qq",
        *("-o", "APT::Architecture=arm64"),
        *("-o", "APT::Architectures=arm64"),
        *("-o", f"Dir::State::Lists={folder}/lists"),
        *("-o", f"Dir::Cache={folder}/cache"),
        *("-o", "Dir::State::status=/dev/null"),
        *("-o", "APT::Sandbox::User=root"),
        *("-o", "Debug::NoLocking=1"),
    ]
    run_tool([*apt, "update"], debs)
    listed = run_tool(
        [*apt, "install", "--print-uris", "--no-install-recommends", *names], debs
    ).splitlines()
    # 'URI' NAME_VERSION_ARCHITECTURE.deb SIZE HASH
    found = [line.split()[1].split("_")[0] for line in listed if line.startswith("'")]
    wanted = [name for name in found if not name.startswith(tuple(skip))]
    for file in debs.glob("*.deb"):
        file.unlink()
    run_tool([*apt, "download", *wanted], debs)
    return sorted(debs.glob("*.deb"))


def unpack(debs: Sequence[Path], root: Path) -> None:
    """Unpacks packages over each other; links to folders stay links."""
    for deb in debs:
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE
        ) as archive:
            run_tool(
                [
                    *("tar", "-x", "-C", str(root), "--keep-directory-symlink"),
                    *("--exclude=./usr/share/doc", "--exclude=./usr/share/man"),
                    *("--exclude=./usr/share/locale", "--exclude=./usr/share/info"),
                ],
                root,
                stdin=archive,
            )


def run_tool(
    command: Sequence[str], folder: Path, *, stdin: subprocess.Popen[bytes] | None = None
) -> str:
    """Runs a program of this computer and returns what it printed.

    Raises:
        DeviceError: it failed; the message has its last words.
    """
    run = subprocess.run(
        list(command),
        cwd=folder,
        stdin=subprocess.DEVNULL if stdin is None else stdin.stdout,
        capture_output=True,
        check=False,
    )
    if run.returncode != 0:
        words = (run.stderr.strip() or run.stdout.strip()).decode("utf-8", "replace").splitlines()
        raise DeviceError(
            f"The virtual machine could not be built: {command[0]} says "
            f"{words[-1] if words else 'nothing'}",
            cause="Debian 12's arm64 packages could not be downloaded or unpacked.",
            next_step="Check the network and the disk, then: edgectl emulator up --full",
        )
    return run.stdout.decode("utf-8", "replace")
