"""A real OpenSSH server on a loopback port, with everything of its own in one folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """Writes ``path`` and ``path.pub``."""
    for old in (path, path.with_name(path.name + ".pub")):
        old.unlink(missing_ok=True)
    extra = ["-b", "2048"] if kind == "rsa" else []
    # -a 1: one round of key derivation is plenty for a test.
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, *extra, "-a", "1", "-N", passphrase, "-f", str(path)],
        check=True,
    )
    return path


def public_line(key: Path) -> str:
    """``type base64`` of a key file, as known_hosts wants it."""
    return " ".join(key.with_name(key.name + ".pub").read_text().split()[:2])


def shown_fingerprint(key: Path) -> str:
    output = subprocess.run(
        ["ssh-keygen", "-lf", f"{key}.pub"], check=True, capture_output=True, text=True
    ).stdout
    return output.split()[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sshd:
    """A running server; ``user_key`` may log in as the user who runs the tests."""

    folder: Path
    port: int
    host_keys: tuple[Path, ...]
    user_key: Path
    user: str

    @property
    def name(self) -> str:
        """What it is called in known_hosts."""
        return f"[127.0.0.1]:{self.port}"

    @property
    def destination(self) -> str:
        return f"{self.user}@127.0.0.1:{self.port}"

    @property
    def known_line(self) -> str:
        return f"{self.name} {public_line(self.host_keys[0])}\n"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


@contextmanager
def running_sshd(
    folder: Path,
    *,
    host_key_kinds: Sequence[str] = ("ed25519",),
    settings: Sequence[str] = (),
    authorized: Sequence[Path] = (),
) -> Iterator[Sshd]:
    """Starts sshd and stops it (with the sessions it has) afterwards."""
    if SSHD is None:
        pytest.skip("no OpenSSH server is installed: sudo apt install openssh-server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    host_keys = tuple(make_key(folder / f"host_{kind}", kind) for kind in host_key_kinds)
    user_key = make_key(folder / "user_key")
    keys = folder / "authorized_keys"
    keys.write_text("".join(public_line(key) + "\n" for key in (user_key, *authorized)))
    port = free_port()
    config = folder / "sshd_config"
    config.write_text(
        "\n".join(
            [
                f"Port {port}",
                "ListenAddress 127.0.0.1",
                *(f"HostKey {key}" for key in host_keys),
                f"AuthorizedKeysFile {keys}",
                f"PidFile {folder / 'pid'}",
                "StrictModes no",
                "UsePAM no",
                "PermitRootLogin yes",
                "PasswordAuthentication no",
                "KbdInteractiveAuthentication no",
                "UseDNS no",
                "LogLevel VERBOSE",
                "Subsystem sftp internal-sftp",
                *settings,
                "",
            ]
        )
    )
    process = subprocess.Popen(
        [SSHD, "-D", "-E", str(folder / "log"), "-f", str(config)], start_new_session=True
    )
    try:
        _wait_until_listening(port, process, folder / "log")
        yield Sshd(
            folder=folder,
            port=port,
            host_keys=host_keys,
            user_key=user_key,
            user=os.environ.get("USER") or _user_name(),
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def _user_name() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def _wait_until_listening(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"sshd did not start: {log.read_text()}")
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError("sshd does not listen")
