"""A device with releases on it, behind a real OpenSSH server, and the command that asks it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runner"))

from tiny_bundles import LoopbackDevice, affine_bundle, ready_handle

from edgectl.remote.push import push_bundle
from support.command import Edgectl
from support.sshd import Sshd, running_sshd

NAMES = ("first", "second", "third")


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """``--device board``; ``releases`` were deployed in this order, the last is current."""

    edgectl: Edgectl
    sshd: Sshd
    root: Path
    releases: tuple[str, ...]

    def current(self) -> str:
        return (self.root / "current").readlink().name

    def files(self) -> list[str]:
        """What is in the home folder of the device, without what Python compiled for itself."""
        found = (p.relative_to(self.root.parent) for p in self.root.parent.rglob("*"))
        return sorted(str(p) for p in found if "__pycache__" not in p.parts)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    """A store with three releases, to copy."""
    folder = tmp_path_factory.mktemp("filled")
    device = LoopbackDevice(folder / "home" / "edgectl")
    handle = ready_handle(device)
    releases = []
    for name in NAMES:
        own = {"own.txt": name.encode() * 100}
        bundle = affine_bundle(folder / f"{name}.edgectl", precision=name, extra=own)
        releases.append(push_bundle(device, handle, bundle, health=False, who="ada@desk").release)
    return device.root, tuple(releases)


@pytest.fixture
def board(tmp_path: Path, filled: tuple[Path, tuple[str, ...]]) -> Iterator[Board]:
    template, releases = filled
    root, home = tmp_path / "device" / "edgectl", tmp_path / "home"
    root.parent.mkdir()
    shutil.copytree(template, root, symlinks=True)
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    with running_sshd(tmp_path / "sshd", settings=[f"SetEnv EDGECTL_ROOT={root}"]) as server:
        (home / ".ssh" / "config").write_text(
            f"Host board\n  HostName 127.0.0.1\n  Port {server.port}\n  User {server.user}\n"
            f"  IdentityFile {server.user_key}\n  IdentitiesOnly yes\n"
        )
        (home / ".ssh" / "known_hosts").write_text(server.known_line)
        environment = {"HOME": str(home), "SSH_AUTH_SOCK": "", "EDGECTL_DEVICE": "board"}
        edgectl = Edgectl(home=tmp_path / "edgectl", environment=environment)
        yield Board(edgectl=edgectl, sshd=server, root=root, releases=releases)
