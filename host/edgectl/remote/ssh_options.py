"""What the command line decides about connections, and how it is asked for secrets."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from edgectl.settings import load_settings

__all__ = ["Ask", "SshOptions", "Warn", "edgectl_known_hosts_file"]

Ask = Callable[[str], str | None]
"""Shows a prompt and returns the secret typed; ``None`` when nobody answers."""

Warn = Callable[[str], None]
"""Takes one line that the user should see, without being stopped by it."""


def edgectl_known_hosts_file() -> Path:
    """The file that ``--accept-new-host-key`` writes; the user's own file is never changed."""
    return load_settings().config_dir / "known_hosts"


def _ignore(_line: str) -> None:
    """Nobody wants to hear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SshOptions:
    """Settings of one connection; what is ``None`` comes from ``~/.ssh/config``.

    ``ask`` shows a prompt for a passphrase or password; without it, ``askpass`` (a program, as
    OpenSSH's SSH_ASKPASS) is run. Secrets are never read from flags or variables.
    ``banner_timeout_s`` limits the wait for the first line, and again for the handshake.
    ``dead_peer_s`` is how long the device may be silent before the connection counts as lost.
    """

    user: str | None = None
    port: int | None = None
    identity_file: Path | None = None
    accept_new_host_key: bool = False
    ask: Ask | None = None
    askpass: str | None = field(default_factory=lambda: os.environ.get("SSH_ASKPASS"))
    warn: Warn = _ignore
    connect_timeout_s: float = 10.0
    banner_timeout_s: float = 15.0
    auth_timeout_s: float = 30.0
    channel_timeout_s: float = 20.0
    keepalive_s: float = 15.0
    dead_peer_s: float = 45.0
    connect_attempts: int = 2
    emulated: bool | None = None
    home: Path = field(default_factory=Path.home)
    local_user: str = field(default_factory=getpass.getuser)
    config_file: Path | None = None
    system_config_file: Path = Path("/etc/ssh/ssh_config")
    known_hosts_file: Path = field(default_factory=edgectl_known_hosts_file)
    agent_socket: str | None = field(default_factory=lambda: os.environ.get("SSH_AUTH_SOCK"))
