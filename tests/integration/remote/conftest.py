"""Real sshd on loopback; each test has a home of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgectl.remote.ssh import SshDevice, connect
from edgectl.remote.ssh_options import SshOptions
from support.sshd import Sshd, running_sshd


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    return folder


@pytest.fixture
def warnings_said() -> list[str]:
    return []


@pytest.fixture
def options_for(home: Path, warnings_said: list[str]) -> Callable[..., SshOptions]:
    """Options that see nothing of this machine but ``home``; the server's key is known."""

    def make(server: Sshd | None = None, **changes: object) -> SshOptions:
        values: dict[str, object] = {
            "home": home,
            "known_hosts_file": home / "edgectl_known_hosts",
            "system_config_file": home / "no_system_config",
            "agent_socket": None,
            "askpass": None,
            "warn": warnings_said.append,
            "connect_timeout_s": 5.0,
        }
        if server is not None:
            values["identity_file"] = server.user_key
            with (home / ".ssh" / "known_hosts").open("a") as file:
                file.write(server.known_line)
        return SshOptions(**{**values, **changes})  # type: ignore[arg-type]

    return make


@pytest.fixture
def device(sshd: Sshd, options_for: Callable[..., SshOptions]) -> Iterator[SshDevice]:
    with connect(sshd.destination, options=options_for(sshd)) as connected:
        yield connected
