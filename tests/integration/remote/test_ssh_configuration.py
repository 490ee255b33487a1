"""``~/.ssh/config`` against real servers: aliases, includes, jump hosts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgectl.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectionFailedError,
    HostKeyError,
)
from edgectl.remote.ssh import connect
from edgectl.remote.ssh_options import SshOptions
from support.sshd import Sshd, free_port, make_key, public_line, running_sshd

Options = Callable[..., SshOptions]


def write_config(home: Path, text: str, name: str = "config") -> None:
    path = home / ".ssh" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture(scope="module")
def jump(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("jump")) as server:
        yield server


def test_alias_with_include_and_match(
    sshd: Sshd, options_for: Options, home: Path, warnings_said: list[str]
) -> None:
    write_config(home, "Include conf.d/*.conf\nMatch exec true\n  Port 1\nMatch all\n")
    write_config(
        home,
        f"Host kitchen\n  HostName 127.0.0.1\n  User {sshd.user}\n  Port {sshd.port}\n"
        f"  IdentityFile {sshd.user_key}\n  IdentitiesOnly yes\n",
        "conf.d/10.conf",
    )
    with connect("kitchen", options=options_for(sshd, identity_file=None)) as device:
        assert device.label == sshd.destination
        assert device.run(["echo", "hello"]).stdout == b"hello\n"
    assert any("Match exec" in line and "config:2" in line for line in warnings_said)


def jump_config(sshd: Sshd, jump: Sshd) -> str:
    return (
        f"Host behind\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {sshd.user}\n"
        f"  IdentityFile {sshd.user_key}\n  ProxyJump gate\n"
        f"Host gate\n  HostName 127.0.0.1\n  Port {jump.port}\n  User {jump.user}\n"
        f"  IdentityFile {jump.user_key}\n"
    )


def test_jump_host_is_passed_through(
    sshd: Sshd, jump: Sshd, options_for: Options, home: Path
) -> None:
    write_config(home, jump_config(sshd, jump))
    options_for(jump)
    before = jump.log.count("Accepted publickey")
    with connect("behind", options=options_for(sshd, identity_file=None)) as device:
        assert device.run(["echo", "hello"]).stdout == b"hello\n"
        assert device.put(b"x" * 1_000_000, str(home / "file")) == 1_000_000
    assert jump.log.count("Accepted publickey") == before + 1


def test_two_jumps_in_a_row(sshd: Sshd, jump: Sshd, options_for: Options, home: Path) -> None:
    write_config(
        home,
        f"Host behind\n  HostName 127.0.0.1\n  Port {sshd.port}\n"
        f"  ProxyJump {jump.destination},{sshd.destination}\n"
        f"Host 127.0.0.1\n  User {sshd.user}\n  IdentityFile {jump.user_key}\n"
        f"  IdentityFile {sshd.user_key}\nMatch all\n  User {sshd.user}\n"
        f"  IdentityFile {sshd.user_key}\n",
    )
    options_for(jump)
    with connect("behind", options=options_for(sshd, identity_file=None)) as device:
        assert device.run(["true"]).exit_code == 0


def test_host_key_of_the_jump_host_is_checked(
    sshd: Sshd, jump: Sshd, options_for: Options, home: Path, tmp_path: Path
) -> None:
    write_config(home, jump_config(sshd, jump))
    options = options_for(sshd, identity_file=None)
    with pytest.raises(HostKeyError, match=f"{jump.port} is unknown"):
        connect("behind", options=options)
    changed = make_key(tmp_path / "other")
    with (home / ".ssh" / "known_hosts").open("a") as file:
        file.write(f"{jump.name} {public_line(changed)}\n")
    with pytest.raises(HostKeyError, match=f"{jump.port} has CHANGED"):
        connect("behind", options=options)


def test_host_key_behind_the_jump_host_is_checked(
    sshd: Sshd, jump: Sshd, options_for: Options, home: Path
) -> None:
    write_config(home, jump_config(sshd, jump))
    options = options_for(jump, identity_file=None)
    with pytest.raises(HostKeyError, match=f"{sshd.port} is unknown"):
        connect("behind", options=options)


def test_key_that_the_jump_host_refuses(
    sshd: Sshd, jump: Sshd, options_for: Options, home: Path
) -> None:
    write_config(home, jump_config(sshd, jump).replace(str(jump.user_key), str(sshd.user_key)))
    options_for(jump)
    with pytest.raises(AuthenticationError, match=str(jump.port)):
        connect("behind", options=options_for(sshd, identity_file=None))


def test_device_that_the_jump_host_cannot_reach(
    sshd: Sshd, jump: Sshd, options_for: Options, home: Path
) -> None:
    port = free_port()
    write_config(home, jump_config(sshd, jump).replace(f"Port {sshd.port}", f"Port {port}"))
    with pytest.raises(ConnectionFailedError, match=f"jump host cannot reach .*:{port}"):
        connect("behind", options=options_for(jump, identity_file=None))


def test_jumps_in_a_circle(options_for: Options, home: Path) -> None:
    write_config(home, "Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    with pytest.raises(ConfigurationError, match="ProxyJump leads through more than"):
        connect("a", options=options_for())


def test_typed_user_and_port_win_over_the_configuration(
    sshd: Sshd, options_for: Options, home: Path
) -> None:
    write_config(home, "Host 127.0.0.1\n  User nobody-here\n  Port 1\n")
    with connect(sshd.destination, options=options_for(sshd)) as device:
        assert device.label == sshd.destination


def test_same_answers_as_openssh(options_for: Options, home: Path) -> None:
    """`ssh -G` resolves the same configuration; what both know must agree."""
    from edgectl.remote.ssh_config import host_settings

    write_config(
        home,
        """
        Host *.lab !bad.lab
          User lab
          Port 2200
        Host pi? pi10
          HostName %h.example
          User = "pi"
          IdentityFile ~/.ssh/%h_key
        Match host pi1.example user pi
          Port 2222
        Match originalhost pi2
          Port 2022
          HostKeyAlias second
        Match !host pi2.example
          ConnectTimeout 7
        Host *
          User everyone
          Port 22
          IdentityFile /keys/%r@%n
          StrictHostKeyChecking accept-new
        """,
    )
    config = home / ".ssh" / "config"
    for alias in ("pi1", "pi2", "pi3", "pi10", "a.lab", "bad.lab", "other"):
        said = subprocess.run(
            ["ssh", "-G", "-F", str(config), alias], capture_output=True, text=True, check=True
        ).stdout
        theirs: dict[str, list[str]] = {}
        for line in said.splitlines():
            name, _, value = line.partition(" ")
            theirs.setdefault(name, []).append(value)
        ours = host_settings(alias, options_for(config_file=config))
        assert ours.hostname == theirs["hostname"][0], alias
        assert ours.user == theirs["user"][0], alias
        assert ours.port == int(theirs["port"][0]), alias
        assert ours.host_key_alias == theirs.get("hostkeyalias", [None])[0], alias
        assert ours.strict_host_key_checking == theirs["stricthostkeychecking"][0]
        if theirs.get("connecttimeout", ["none"])[0] not in ("none", "0"):
            assert ours.connect_timeout_s == float(theirs["connecttimeout"][0]), alias
        tokens = {"~": home, "%h": ours.hostname, "%r": ours.user, "%n": alias}
        expected = theirs["identityfile"]
        for token, value in tokens.items():
            expected = [text.replace(token, str(value)) for text in expected]
        assert [str(p) for p in ours.identity_files] == expected, alias
