"""Logging in: keys, encrypted keys, the agent, passwords, and clear words when nothing fits."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest

from edgectl.errors import AuthenticationError
from edgectl.remote.ssh import connect
from edgectl.remote.ssh_options import SshOptions
from support.password_server import PasswordServer, running
from support.sshd import Sshd, make_key, running_sshd

Options = Callable[..., SshOptions]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    make_key(folder / "plain_rsa", "rsa")
    make_key(folder / "plain_ecdsa", "ecdsa")
    make_key(folder / "locked_ed25519", passphrase="open sesame")
    make_key(folder / "locked_rsa", "rsa", passphrase="open sesame")
    make_key(folder / "stranger")
    make_key(folder / "locked_stranger", passphrase="open sesame")
    subprocess.run(
        [
            *("ssh-keygen", "-q", "-t", "ecdsa", "-m", "PEM", "-N", "open sesame"),
            *("-f", str(folder / "locked_pem")),
        ],
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def server(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    names = ("plain_rsa", "plain_ecdsa", "locked_ed25519", "locked_rsa", "locked_pem")
    with running_sshd(
        tmp_path_factory.mktemp("sshd_login"), authorized=[keys / name for name in names]
    ) as running_server:
        yield running_server


@pytest.mark.parametrize("name", ["plain_rsa", "plain_ecdsa"])
def test_key_of_every_kind_logs_in(
    server: Sshd, options_for: Options, keys: Path, name: str
) -> None:
    connect(server.destination, options=options_for(server, identity_file=keys / name)).close()


@pytest.mark.parametrize("name", ["locked_ed25519", "locked_rsa", "locked_pem"])
def test_encrypted_key_without_anybody_to_ask(
    server: Sshd, options_for: Options, keys: Path, name: str
) -> None:
    with pytest.raises(
        AuthenticationError, match="encrypted, and there is nobody to ask"
    ) as caught:
        connect(server.destination, options=options_for(server, identity_file=keys / name))
    assert str(keys / name) in caught.value.message
    assert f"ssh-add {keys / name}" in (caught.value.next_step or "")


@pytest.mark.parametrize("name", ["locked_ed25519", "locked_rsa", "locked_pem"])
def test_encrypted_key_with_wrong_passphrases(
    server: Sshd, options_for: Options, keys: Path, name: str
) -> None:
    answers = iter(["wrong", "wronger", "wrongest", "never asked for"])
    options = options_for(server, identity_file=keys / name, ask=lambda _prompt: next(answers))
    with pytest.raises(AuthenticationError, match="wrong passphrase") as caught:
        connect(server.destination, options=options)
    assert str(keys / name) in caught.value.message
    assert next(answers) == "never asked for"


@pytest.mark.parametrize("name", ["locked_ed25519", "locked_rsa", "locked_pem"])
def test_encrypted_key_with_the_right_passphrase_at_the_second_try(
    server: Sshd, options_for: Options, keys: Path, name: str
) -> None:
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return "typo" if len(prompts) == 1 else "open sesame"

    options = options_for(server, identity_file=keys / name, ask=ask)
    connect(server.destination, options=options).close()
    assert len(prompts) == 2
    assert str(keys / name) in prompts[0]


def test_right_passphrase_of_a_key_that_the_device_does_not_know(
    server: Sshd, options_for: Options, keys: Path
) -> None:
    options = options_for(
        server, identity_file=keys / "locked_stranger", ask=lambda _prompt: "open sesame"
    )
    with pytest.raises(AuthenticationError, match="refused") as caught:
        connect(server.destination, options=options)
    assert "locked_stranger" in caught.value.message
    assert "SHA256:" in caught.value.message
    assert "ssh-copy-id" in (caught.value.next_step or "")
    assert caught.value.exit_code == 6


def test_askpass_program_is_asked(
    server: Sshd, options_for: Options, keys: Path, tmp_path: Path
) -> None:
    program = tmp_path / "askpass"
    program.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {tmp_path}/prompt\necho "open sesame"\n')
    program.chmod(0o755)
    options = options_for(server, identity_file=keys / "locked_ed25519", askpass=str(program))
    connect(server.destination, options=options).close()
    assert "locked_ed25519" in (tmp_path / "prompt").read_text()


def test_default_keys_are_found_and_a_locked_one_is_not_asked_for_when_another_fits(
    server: Sshd, options_for: Options, keys: Path, home: Path
) -> None:
    for source, name in (("locked_stranger", "id_ed25519"), ("plain_rsa", "id_rsa")):
        (home / ".ssh" / name).write_bytes((keys / source).read_bytes())
        (home / ".ssh" / name).chmod(0o600)

    def ask(prompt: str) -> str:
        raise AssertionError(prompt)

    options = options_for(server, identity_file=None, ask=ask)
    connect(server.destination, options=options).close()


def test_not_a_key_and_no_such_key(server: Sshd, options_for: Options, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for name, words in (("text", "not a private key"), ("missing", "No such file")):
        with pytest.raises(AuthenticationError, match=words) as caught:
            connect(server.destination, options=options_for(server, identity_file=tmp_path / name))
        assert str(tmp_path / name) in caught.value.message


def test_key_that_others_can_read_is_warned_about(
    server: Sshd, options_for: Options, keys: Path, tmp_path: Path, warnings_said: list[str]
) -> None:
    open_key = tmp_path / "open_key"
    open_key.write_bytes((keys / "plain_rsa").read_bytes())
    open_key.chmod(0o644)
    connect(server.destination, options=options_for(server, identity_file=open_key)).close()
    assert any(f"chmod 600 {open_key}" in line for line in warnings_said)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[tuple[str, int]]:
    path = str(tmp_path / "agent")
    said = subprocess.run(
        ["ssh-agent", "-s", "-a", path], check=True, capture_output=True, text=True
    ).stdout
    process_id = int(said.split("SSH_AGENT_PID=")[1].split(";")[0])
    yield path, process_id
    os.kill(process_id, signal.SIGTERM)


def add_to_agent(path: str, key: Path) -> None:
    subprocess.run(
        ["ssh-add", "-q", str(key)],
        check=True,
        env={**os.environ, "SSH_AUTH_SOCK": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


def test_agent_key_logs_in(
    server: Sshd, options_for: Options, keys: Path, agent: tuple[str, int]
) -> None:
    add_to_agent(agent[0], keys / "plain_rsa")
    options = options_for(server, identity_file=None, agent_socket=agent[0])
    connect(server.destination, options=options).close()


def test_identities_only_leaves_the_agents_other_keys_alone(
    server: Sshd, options_for: Options, keys: Path, agent: tuple[str, int], home: Path
) -> None:
    add_to_agent(agent[0], keys / "plain_rsa")
    (home / ".ssh" / "config").write_text(f"IdentitiesOnly yes\nIdentityFile {keys / 'stranger'}\n")
    options = options_for(server, identity_file=None, agent_socket=agent[0])
    with pytest.raises(AuthenticationError) as caught:
        connect(server.destination, options=options)
    assert "agent" not in caught.value.message


def test_dead_agent_is_no_obstacle(
    server: Sshd, options_for: Options, home: Path, warnings_said: list[str]
) -> None:
    options = options_for(server, agent_socket=str(home / "nobody"))
    connect(server.destination, options=options).close()
    assert any("agent" in line for line in warnings_said)


def test_many_agent_keys_end_in_a_clear_message(
    server: Sshd, options_for: Options, agent: tuple[str, int], tmp_path: Path
) -> None:
    for number in range(8):
        add_to_agent(agent[0], make_key(tmp_path / f"k{number}"))
    options = options_for(server, identity_file=None, agent_socket=agent[0])
    with pytest.raises(AuthenticationError, match="no more than 5 keys"):
        connect(server.destination, options=options)


@pytest.mark.parametrize("methods", [("password",), ("keyboard-interactive",)])
def test_password_is_asked_for_last(
    options_for: Options, home: Path, methods: tuple[str, ...]
) -> None:
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return "123456" if "Code" in prompt else "raspberry"

    with running(PasswordServer(methods=methods)) as server:
        (home / ".ssh" / "known_hosts").write_text(server.known_line)
        options = options_for(ask=ask)
        connect(f"pi@127.0.0.1:{server.port}", options=options).close()
    assert prompts[0] == f"Password of pi@127.0.0.1:{server.port}: "


def test_wrong_password_is_asked_for_three_times(options_for: Options, home: Path) -> None:
    answers = iter(["a", "b", "c", "not asked for"])
    with running(PasswordServer()) as server:
        (home / ".ssh" / "known_hosts").write_text(server.known_line)
        with pytest.raises(AuthenticationError, match="password: wrong"):
            connect(f"pi@127.0.0.1:{server.port}", options=options_for(ask=lambda _: next(answers)))
        assert server.attempts == ["password a", "password b", "password c"]


def test_program_that_repeats_a_wrong_password_does_not_lock_the_account(
    options_for: Options, home: Path
) -> None:
    with running(PasswordServer()) as server:
        (home / ".ssh" / "known_hosts").write_text(server.known_line)
        with pytest.raises(AuthenticationError):
            connect(f"pi@127.0.0.1:{server.port}", options=options_for(ask=lambda _: "same"))
        assert server.attempts == ["password same"]


def test_key_and_password_together(options_for: Options, home: Path, keys: Path) -> None:
    key = paramiko.RSAKey.from_private_key_file(str(keys / "plain_rsa"))
    with running(PasswordServer(key=key)) as server:
        (home / ".ssh" / "known_hosts").write_text(server.known_line)
        options = options_for(identity_file=keys / "plain_rsa", ask=lambda _: "raspberry")
        connect(f"pi@127.0.0.1:{server.port}", options=options).close()
        assert server.attempts == ["publickey", "password raspberry"]


def test_nobody_to_ask_for_a_password(options_for: Options, home: Path) -> None:
    with running(PasswordServer()) as server:
        (home / ".ssh" / "known_hosts").write_text(server.known_line)
        with pytest.raises(AuthenticationError) as caught:
            connect(f"pi@127.0.0.1:{server.port}", options=options_for())
    assert "no key, no agent and no password" in (caught.value.cause or "")


def test_server_that_hangs_up_after_few_keys(
    options_for: Options, agent: tuple[str, int], tmp_path: Path
) -> None:
    for number in range(4):
        add_to_agent(agent[0], make_key(tmp_path / f"k{number}"))
    with running_sshd(tmp_path / "strict", settings=["MaxAuthTries 2"]) as strict:
        options = options_for(strict, identity_file=None, agent_socket=agent[0])
        with pytest.raises(AuthenticationError, match="hung up") as caught:
            connect(strict.destination, options=options)
    assert "MaxAuthTries" in (caught.value.cause or "")
    assert "IdentitiesOnly" in (caught.value.next_step or "")


def test_no_passphrase_typed(server: Sshd, options_for: Options, keys: Path) -> None:
    options = options_for(server, identity_file=keys / "locked_rsa", ask=lambda _prompt: None)
    with pytest.raises(AuthenticationError, match="no passphrase was given"):
        connect(server.destination, options=options)


def test_public_key_file_names_a_key_of_the_agent(
    server: Sshd, options_for: Options, keys: Path, agent: tuple[str, int], tmp_path: Path
) -> None:
    """As users of hardware tokens and password managers write it."""
    for number in range(6):
        add_to_agent(agent[0], make_key(tmp_path / f"k{number}"))
    add_to_agent(agent[0], keys / "plain_ecdsa")
    named = tmp_path / "only_this.pub"
    named.write_bytes((keys / "plain_ecdsa.pub").read_bytes())
    options = options_for(server, identity_file=named, agent_socket=agent[0])
    connect(server.destination, options=options).close()


def test_configured_key_comes_before_a_full_agent(
    server: Sshd, options_for: Options, keys: Path, agent: tuple[str, int], home: Path
) -> None:
    for number in range(6):
        add_to_agent(agent[0], make_key(home / f"k{number}"))
    (home / ".ssh" / "config").write_text(f"IdentityFile {keys / 'plain_rsa'}\n")
    options = options_for(server, identity_file=None, agent_socket=agent[0])
    connect(server.destination, options=options).close()
