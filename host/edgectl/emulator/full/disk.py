"""Card images: copies of the built one, with one machine's own keys written into them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from edgectl.emulator.full.image import PI_ID, MachineImage

__all__ = ["copy_sparse", "new_card", "tool"]


def new_card(image: MachineImage, disk: Path, keys: Path) -> None:
    """A copy of the image with this machine's host key and the user's public key on it.

    Args:
        image: the built one.
        disk: the copy; ``host_key`` is made beside it.
        keys: folder of ``id_ed25519``, made if it is missing.
    """
    partial = disk.with_suffix(".new")
    copy_sparse(image.disk, partial)
    host_key, user_key = disk.parent / "host_key", keys / "id_ed25519"
    for path in (host_key, user_key):
        if not path.exists():
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "edgectl virtual Pi"]
            subprocess.run([*command, "-f", str(path)], check=True, capture_output=True)
    lines: list[str] = []
    for source, place, owner, mode in (
        (host_key, "/etc/ssh/ssh_host_ed25519_key", 0, "0100600"),
        (user_key.with_suffix(".pub"), "/root/.ssh/authorized_keys", 0, "0100600"),
        (user_key.with_suffix(".pub"), "/home/pi/.ssh/authorized_keys", PI_ID, "0100600"),
    ):
        folder, _, name = place.rpartition("/")
        # `write` takes the second word for a name in the current folder.
        lines += [f"cd {folder}", f'write "{source}" {name}', f"sif {place} mode {mode}"]
        lines += [f"sif {place} uid {owner}", f"sif {place} gid {owner}"]
    subprocess.run(
        [tool("debugfs"), "-w", "-f", "-", str(partial)],
        input="\n".join(lines) + "\n",
        text=True,
        check=True,
        capture_output=True,
    )
    partial.replace(disk)


def copy_sparse(source: Path, target: Path) -> None:
    """A copy whose holes stay holes."""
    subprocess.run(
        ["cp", "--sparse=always", "--reflink=auto", str(source), str(target)],
        check=True,
        capture_output=True,
    )


def tool(name: str) -> str:
    """A program of e2fsprogs, which lies where not everybody's PATH leads."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return shutil.which(name, path=path) or name
