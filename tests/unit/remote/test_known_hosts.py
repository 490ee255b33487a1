"""Reading known_hosts: one bad line spoils its own host only. No server needed."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edgectl.remote.known_hosts import fingerprint, known_keys, remember_host_key

TYPE = "ssh-ed25519"


def blob(seed: int, key_type: str = TYPE) -> bytes:
    name = key_type.encode()
    return len(name).to_bytes(4, "big") + name + (32).to_bytes(4, "big") + bytes([seed]) * 32


def line(hosts: str, seed: int = 1) -> str:
    return f"{hosts} {TYPE} {base64.b64encode(blob(seed)).decode()} comment here\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "known_hosts"


@pytest.mark.parametrize(
    ("hosts", "name", "matches"),
    [
        ("host", "host", True),
        ("HOST", "host", True),
        ("other,host", "host", True),
        ("*.lab", "a.lab", True),
        ("*.lab,!a.lab", "a.lab", False),
        ("h?st", "host", True),
        ("host", "[host]:2222", False),
        ("[host]:2222", "[host]:2222", True),
        ("[host]:*", "[host]:2222", True),
        ("host", "hosts", False),
    ],
)
def test_names_and_patterns(file: Path, hosts: str, name: str, matches: bool) -> None:
    file.write_text(line(hosts))
    assert bool(known_keys([file], [name]).keys) is matches


def test_files_that_are_not_there_hold_no_keys(tmp_path: Path) -> None:
    found = known_keys([tmp_path / "missing", Path("/dev/null/nothing")], ["host"])
    assert (found.keys, found.unreadable) == ((), ())


def test_comments_blank_lines_and_other_key_types_are_no_trouble(file: Path) -> None:
    security_key = "sk-ssh-ed25519@openssh.com"
    encoded = base64.b64encode(blob(3, security_key)).decode()
    file.write_text(f"# a comment\n\n   \nhost {security_key} {encoded}\n" + line("host"))
    found = known_keys([file], ["host"])
    assert [key.key_type for key in found.keys] == [security_key, TYPE]
    assert (found.unreadable, found.skipped) == ((), ())


@pytest.mark.parametrize(
    "bad",
    [
        "host",
        "host ssh-ed25519",
        "host ssh-ed25519 AAAA",
        "host ssh-rsa " + base64.b64encode(blob(1)).decode(),
        "host ssh-ed25519 " + base64.b64encode(blob(1)[:-4]).decode(),
        "host ssh-ed25519 " + base64.b64encode(blob(1) + b"xx").decode(),
        "@unknown-marker host ssh-ed25519 " + base64.b64encode(blob(1)).decode(),
    ],
)
def test_a_bad_line_concerns_the_host_it_names(file: Path, bad: str) -> None:
    file.write_text(bad + "\n" + line("host"))
    mine, other = known_keys([file], ["host"]), known_keys([file], ["elsewhere"])
    assert mine.unreadable[0].startswith(f"{file}:1: ")
    assert other.unreadable == ()
    assert other.skipped[0].startswith(f"{file}:1: ")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=200))
@example(content=b"|1|x|y host key\n")
@example(content=b"@revoked")
@example(content=b"\xff\xfe host\x00")
def test_no_content_breaks_the_reader(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert known_keys([file], ["host"]).keys == ()


def test_remembering_does_not_glue_lines_together(file: Path) -> None:
    file.write_text(line("first").rstrip("\n"))
    remember_host_key(file, "[host]:22", TYPE, blob(7))
    found = known_keys([file], ["[host]:22"])
    assert [key.blob for key in found.keys] == [blob(7)]
    assert [key.blob for key in known_keys([file], ["first"]).keys] == [blob(1)]


def test_fingerprint_is_written_as_openssh_writes_it() -> None:
    # ssh-keygen -lf of GitHub's published ED25519 host key.
    key = base64.b64decode("AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl")
    assert fingerprint(key) == "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"
