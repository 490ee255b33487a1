"""Whom we trust: known, unknown, changed, revoked and unreadable host keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgectl.errors import ConfigurationError, HostKeyError
from edgectl.remote.ssh import connect
from edgectl.remote.ssh_options import SshOptions
from support.sshd import Sshd, make_key, public_line, running_sshd, shown_fingerprint

Options = Callable[..., SshOptions]


def known_hosts(home: Path, text: str) -> Path:
    path = home / ".ssh" / "known_hosts"
    path.write_text(text)
    return path


def test_unknown_key_is_refused_with_fingerprint_and_command(
    sshd: Sshd, options_for: Options, home: Path
) -> None:
    options = options_for(identity_file=sshd.user_key)
    with pytest.raises(HostKeyError) as caught:
        connect(sshd.destination, options=options)
    assert shown_fingerprint(sshd.host_keys[0]) in caught.value.message
    assert "--accept-new-host-key" in (caught.value.next_step or "")
    assert caught.value.exit_code == 6
    assert not options.known_hosts_file.exists()
    assert not (home / ".ssh" / "known_hosts").exists()


def test_accepted_key_goes_to_edgectls_own_file_only_and_is_then_known(
    sshd: Sshd, options_for: Options, home: Path, warnings_said: list[str]
) -> None:
    accepting = options_for(identity_file=sshd.user_key, accept_new_host_key=True)
    connect(sshd.destination, options=accepting).close()
    assert accepting.known_hosts_file.read_text() == sshd.known_line
    assert accepting.known_hosts_file.stat().st_mode & 0o777 == 0o600
    assert not (home / ".ssh" / "known_hosts").exists()
    assert any(shown_fingerprint(sshd.host_keys[0]) in line for line in warnings_said)
    connect(sshd.destination, options=options_for(identity_file=sshd.user_key)).close()


@pytest.mark.parametrize("accept", [False, True])
@pytest.mark.parametrize("strictness", ["yes", "accept-new", "no"])
def test_changed_key_is_refused_whatever_is_set(
    sshd: Sshd, options_for: Options, home: Path, tmp_path: Path, accept: bool, strictness: str
) -> None:
    other = make_key(tmp_path / "other")
    path = known_hosts(home, f"{sshd.name} {public_line(other)}\n")
    (home / ".ssh" / "config").write_text(f"StrictHostKeyChecking {strictness}\n")
    options = options_for(identity_file=sshd.user_key, accept_new_host_key=accept)
    with pytest.raises(HostKeyError, match="CHANGED") as caught:
        connect(sshd.destination, options=options)
    assert shown_fingerprint(other) in caught.value.message
    assert shown_fingerprint(sshd.host_keys[0]) in caught.value.message
    assert f"{path}:1" in caught.value.message
    assert not options.known_hosts_file.exists()


def test_another_key_type_does_not_make_a_known_host_unknown(
    options_for: Options, home: Path, tmp_path: Path
) -> None:
    """A host known by its RSA key that also has others (paramiko/paramiko#67)."""
    with running_sshd(tmp_path / "three", host_key_kinds=("ed25519", "ecdsa", "rsa")) as server:
        for key in server.host_keys:
            known_hosts(home, f"{server.name} {public_line(key)}\n")
            options = options_for(identity_file=server.user_key)
            connect(server.destination, options=options).close()
            assert not options.known_hosts_file.exists()


def test_a_known_host_that_lost_its_key_type_counts_as_changed(
    sshd: Sshd, options_for: Options, home: Path, tmp_path: Path
) -> None:
    rsa = make_key(tmp_path / "rsa", "rsa")
    known_hosts(home, f"{sshd.name} {public_line(rsa)}\n")
    with pytest.raises(HostKeyError, match="CHANGED"):
        connect(
            sshd.destination,
            options=options_for(identity_file=sshd.user_key, accept_new_host_key=True),
        )


def test_revoked_key_is_refused_although_it_is_also_known(
    sshd: Sshd, options_for: Options, home: Path
) -> None:
    path = known_hosts(
        home, sshd.known_line + f"@revoked * {public_line(sshd.host_keys[0])} stolen\n"
    )
    with pytest.raises(HostKeyError, match="REVOKED") as caught:
        connect(sshd.destination, options=options_for(identity_file=sshd.user_key))
    assert f"{path}:2" in caught.value.message


def test_revoked_keys_file_is_honoured(
    sshd: Sshd, options_for: Options, home: Path, tmp_path: Path
) -> None:
    revoked = tmp_path / "revoked"
    revoked.write_text(f"# stolen\n{public_line(sshd.host_keys[0])}\n")
    (home / ".ssh" / "config").write_text(f"RevokedHostKeys {revoked}\n")
    with pytest.raises(HostKeyError, match="REVOKED"):
        connect(sshd.destination, options=options_for(sshd))
    revoked.unlink()
    with pytest.raises(ConfigurationError, match="revoked"):
        connect(sshd.destination, options=options_for(sshd))


@pytest.mark.parametrize("key", ["ssh-ed25519 !!!notbase64", "ssh-ed25519", "ssh-rsa AAAA"])
def test_damaged_line_about_this_host_fails_closed(
    sshd: Sshd, options_for: Options, home: Path, key: str
) -> None:
    path = known_hosts(home, f"{sshd.name} {key}\n{sshd.known_line}")
    with pytest.raises(HostKeyError) as caught:
        connect(
            sshd.destination,
            options=options_for(identity_file=sshd.user_key, accept_new_host_key=True),
        )
    assert f"{path}:1" in caught.value.message


def test_damaged_line_about_another_host_is_skipped_with_a_warning(
    sshd: Sshd, options_for: Options, home: Path, warnings_said: list[str]
) -> None:
    path = known_hosts(home, "other.example ssh-ed25519 !!!\n" + sshd.known_line)
    connect(sshd.destination, options=options_for(identity_file=sshd.user_key)).close()
    assert any(f"{path}:1" in line for line in warnings_said)


def test_damaged_revocation_fails_closed_for_every_host(
    sshd: Sshd, options_for: Options, home: Path
) -> None:
    known_hosts(home, "@revoked\n" + sshd.known_line)
    with pytest.raises(HostKeyError):
        connect(sshd.destination, options=options_for(identity_file=sshd.user_key))


def test_certificate_authority_line_is_not_taken_for_a_host_key(
    sshd: Sshd, options_for: Options, home: Path
) -> None:
    known_hosts(home, f"@cert-authority * {public_line(sshd.host_keys[0])}\n")
    with pytest.raises(HostKeyError, match="unknown") as caught:
        connect(sshd.destination, options=options_for(identity_file=sshd.user_key))
    assert "certificate authority" in (caught.value.cause or "")


def test_hashed_names_and_aliases_are_found(sshd: Sshd, options_for: Options, home: Path) -> None:
    import subprocess

    path = known_hosts(home, sshd.known_line)
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, capture_output=True)
    assert path.read_text().startswith("|1|")
    connect(sshd.destination, options=options_for(identity_file=sshd.user_key)).close()

    known_hosts(home, f"kitchen {public_line(sshd.host_keys[0])}\n")
    (home / ".ssh" / "config").write_text("HostKeyAlias kitchen\n")
    connect(sshd.destination, options=options_for(identity_file=sshd.user_key)).close()


def test_user_known_hosts_file_of_the_configuration_is_used(
    sshd: Sshd, options_for: Options, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "hosts here").write_text(sshd.known_line)
    (home / ".ssh" / "config").write_text(
        f'UserKnownHostsFile "{tmp_path / "hosts here"}" /dev/null\n'
    )
    connect(sshd.destination, options=options_for(identity_file=sshd.user_key)).close()


def test_key_known_without_port_vouches_for_another_port_and_no_more(
    sshd: Sshd, options_for: Options, home: Path, tmp_path: Path
) -> None:
    known_hosts(home, f"127.0.0.1 {public_line(sshd.host_keys[0])}\n")
    connect(sshd.destination, options=options_for(identity_file=sshd.user_key)).close()
    other = make_key(tmp_path / "other")
    known_hosts(home, f"127.0.0.1 {public_line(other)}\n")
    with pytest.raises(HostKeyError, match="unknown"):
        connect(sshd.destination, options=options_for(identity_file=sshd.user_key))
    known_hosts(home, f"@revoked 127.0.0.1 {public_line(sshd.host_keys[0])}\n{sshd.known_line}")
    with pytest.raises(HostKeyError, match="REVOKED"):
        connect(sshd.destination, options=options_for(identity_file=sshd.user_key))
