"""A board of one's own: a real OpenSSH server, and an ssh configuration that names it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import small_models
from support.command import Edgectl
from support.sshd import Sshd, running_sshd

MODELS = small_models.__file__


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """This computer as a device: ``--device board`` with the target ``host``."""

    edgectl: Edgectl
    sshd: Sshd
    root: Path
    known: Callable[[str], None]

    @property
    def leftovers(self) -> list[str]:
        """Files of transfers that did not end, on the device."""
        return sorted(
            str(p.relative_to(self.root)) for p in self.root.glob("incoming/**/*") if p.is_file()
        )

    def processes(self, word: str) -> list[int]:
        """What runs on the device with this word and the device's root in its command line."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                line = b" ".join(words)
                if str(self.root).encode() in line and word.encode() in words:
                    found.append(int(entry.name))
        return found


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels and compiled modules, once for all boards."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def board(tmp_path: Path, shared_cache: Path) -> Iterator[Board]:
    home, root = tmp_path / "home", tmp_path / "device" / "edgectl"
    root.parent.mkdir()
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    (tmp_path / "edgectl").mkdir()
    (tmp_path / "edgectl" / "cache").symlink_to(shared_cache)
    with running_sshd(tmp_path / "sshd", settings=[f"SetEnv EDGECTL_ROOT={root}"]) as server:
        (home / ".ssh" / "config").write_text(
            f"Host board\n  HostName 127.0.0.1\n  Port {server.port}\n  User {server.user}\n"
            f"  IdentityFile {server.user_key}\n  IdentitiesOnly yes\n"
        )
        known_hosts = home / ".ssh" / "known_hosts"
        known_hosts.write_text(server.known_line)
        environment = {"HOME": str(home), "SSH_AUTH_SOCK": "", "EDGECTL_TEST_ROOT": str(root)}
        yield Board(
            edgectl=Edgectl(home=tmp_path / "edgectl", environment=environment),
            sshd=server,
            root=root,
            known=lambda text: known_hosts.write_text(text) and None,
        )


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Path:
    """A small model compiled for this computer."""
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "cache").symlink_to(shared_cache)
    path = folder / "digits.edgectl"
    edgectl = Edgectl(home=folder, environment={"PYTHONPATH": os.environ.get("PYTHONPATH", "")})
    edgectl("compile", f"{MODELS}:digits", "--target", "host", "-o", path).expect(0)
    return path
