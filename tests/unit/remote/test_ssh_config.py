"""Reading ssh configurations: what is honoured, warned about, and refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgectl.errors import ConfigurationError
from edgectl.remote.ssh_config import HostSettings, host_settings
from edgectl.remote.ssh_options import SshOptions

Resolve = Callable[..., HostSettings]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def resolve(tmp_path: Path, said: list[str]) -> Resolve:
    (tmp_path / ".ssh").mkdir()

    def run(text: str, alias: str = "host", **changes: object) -> HostSettings:
        (tmp_path / ".ssh" / "config").write_text(text)
        values: dict[str, object] = {
            "home": tmp_path,
            "local_user": "me",
            "known_hosts_file": tmp_path / "known",
            "system_config_file": tmp_path / "system",
            "agent_socket": "/agent",
            "warn": said.append,
        }
        return host_settings(alias, SshOptions(**{**values, **changes}))  # type: ignore[arg-type]

    return run


def test_without_any_configuration(resolve: Resolve, tmp_path: Path) -> None:
    found = resolve("")
    assert (found.hostname, found.port, found.user) == ("host", 22, "me")
    assert found.identity_files[0] == tmp_path / ".ssh" / "id_ed25519"
    assert found.default_identities
    assert found.known_hosts_files[0] == tmp_path / ".ssh" / "known_hosts"
    assert found.known_hosts_files[-1] == tmp_path / "known"
    assert found.agent_socket == "/agent"


@pytest.mark.parametrize(
    "line", ["Port 2222", "port=2222", "PORT = 2222", "\tPort\t2222  # why", 'Port "2222"']
)
def test_spellings(resolve: Resolve, line: str) -> None:
    assert resolve(line).port == 2222


def test_first_value_wins_and_identity_files_add_up(resolve: Resolve) -> None:
    found = resolve("User a\nUser b\nIdentityFile /one\nIdentityFile /two\nIdentityFile /one\n")
    assert found.user == "a"
    assert found.identity_files == (Path("/one"), Path("/two"))


def test_system_configuration_comes_last(resolve: Resolve, tmp_path: Path) -> None:
    (tmp_path / "system").write_text("User system\nPort 5\n")
    found = resolve("User mine\n")
    assert (found.user, found.port) == ("mine", 5)


def test_include_with_globs_nesting_and_missing_files(resolve: Resolve, tmp_path: Path) -> None:
    for name, text in (("b.conf", "User b\nPort 7\n"), ("a.conf", "User a\n")):
        (tmp_path / ".ssh" / name).write_text(text)
    (tmp_path / "elsewhere").write_text("Include a.conf\n")
    found = resolve(f"Include {tmp_path}/elsewhere no-such-file\nInclude *.conf\n")
    assert (found.user, found.port) == ("a", 7)


def test_include_in_a_block_counts_only_for_that_host(resolve: Resolve, tmp_path: Path) -> None:
    (tmp_path / ".ssh" / "extra").write_text("User extra\n")
    assert resolve("Host other\n  Include extra\n").user == "me"
    assert resolve("Host host\n  Include extra\n").user == "extra"


def test_host_line_of_an_included_file_ends_with_it(resolve: Resolve, tmp_path: Path) -> None:
    (tmp_path / ".ssh" / "extra").write_text("Host other\n  User extra\n")
    assert resolve("Include extra\nPort 7\n").port == 7


def test_include_in_a_circle(resolve: Resolve) -> None:
    with pytest.raises(ConfigurationError, match="16 files deep"):
        resolve("Include config\n")


def test_match_exec_is_not_run_and_neither_side_holds(
    resolve: Resolve, said: list[str], tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    found = resolve(
        f'Match exec "touch {canary}"\n  Port 1\nMatch !exec "touch {canary}"\n  Port 2\n'
        "Match all\n  Port 3\n"
    )
    assert found.port == 3
    assert not canary.exists()
    assert [line.rpartition("/")[2].split(" ")[0] for line in said] == ["config:1:", "config:3:"]


def test_unknown_keywords_are_warned_about_and_harmless_ones_are_not(
    resolve: Resolve, said: list[str]
) -> None:
    resolve("ForwardAgent yes\nControlMaster auto\nCiphers aes128-ctr\nFutureThing on\n")
    assert len(said) == 2
    assert "ciphers" in said[0]
    assert "config:4: futurething is not supported" in said[1]


@pytest.mark.parametrize("line", ["ProxyCommand nc %h %p", "KnownHostsCommand /bin/keys"])
def test_what_decides_about_trust_or_runs_commands_is_refused(resolve: Resolve, line: str) -> None:
    with pytest.raises(ConfigurationError, match="config:1"):
        resolve(line)


def test_proxy_command_and_jump_as_openssh_combines_them(resolve: Resolve) -> None:
    assert resolve("ProxyJump gate\nProxyCommand nc %h %p\n").proxy_jump == ("gate",)
    assert resolve("ProxyCommand none\nProxyJump gate\n").proxy_jump == ()
    assert resolve("ProxyJump none\n").proxy_jump == ()
    assert resolve("ProxyJump a@b:1,c\n").proxy_jump == ("a@b:1", "c")


def test_strict_host_key_checking(resolve: Resolve, said: list[str]) -> None:
    assert resolve("").strict_host_key_checking == "ask"
    assert resolve("StrictHostKeyChecking yes").strict_host_key_checking == "yes"
    assert not said
    assert resolve("StrictHostKeyChecking no").strict_host_key_checking == "accept-new"
    assert "never accepts a changed key" in said[0]
    with pytest.raises(ConfigurationError, match="config:1: StrictHostKeyChecking maybe"):
        resolve("StrictHostKeyChecking maybe")


@pytest.mark.parametrize("line", ["Port x", "Port 0", "Port 70000", "Port", "ConnectTimeout -1"])
def test_values_that_make_no_sense_are_named(resolve: Resolve, line: str) -> None:
    with pytest.raises(ConfigurationError, match="config:1"):
        resolve(line)


def test_open_quote_is_named(resolve: Resolve) -> None:
    with pytest.raises(ConfigurationError, match="config:2"):
        resolve('Port 22\nUser "me\n')


def test_command_line_options_are_for_the_device_and_not_for_jump_hosts(
    resolve: Resolve, tmp_path: Path
) -> None:
    typed = {"user": "typed", "port": 99, "identity_file": tmp_path / "key"}
    found = resolve("User file\nPort 5\nIdentityFile /file\n", **typed)
    assert (found.user, found.port) == ("typed", 99)
    assert found.identity_files == (tmp_path / "key", Path("/file"))
    assert found.identities_only
    options = SshOptions(
        home=tmp_path, known_hosts_file=tmp_path / "k", system_config_file=tmp_path / "s", **typed
    )
    hop = host_settings("gate", options, hop=True)
    assert (hop.user, hop.port) == ("file", 5)
    assert hop.identity_files == (Path("/file"),)


def test_identity_agent(resolve: Resolve, tmp_path: Path) -> None:
    assert resolve("IdentityAgent none").agent_socket is None
    assert resolve("IdentityAgent ~/agent").agent_socket == str(tmp_path / "agent")
    assert resolve("IdentityAgent SSH_AUTH_SOCK").agent_socket == "/agent"


def test_named_configuration_must_exist(resolve: Resolve, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        resolve("", config_file=tmp_path / "missing")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.lists(
        st.sampled_from(
            ["Host", "Match", "Include", "User", "Port", "HostName", "ProxyJump", "IdentityFile"]
        ).flatmap(lambda word: st.text(max_size=20).map(lambda rest: f"{word} {rest}"))
        | st.text(max_size=30),
        max_size=8,
    ).map("\n".join)
)
def test_any_text_is_read_or_a_configuration_error(resolve: Resolve, text: str) -> None:
    try:
        found = resolve(text.encode("utf-8", "replace").decode("utf-8"))
    except ConfigurationError:
        return
    assert 0 < found.port < 65536
