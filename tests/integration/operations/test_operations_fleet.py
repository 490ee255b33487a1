"""Several devices at once, and a device that somebody else is deploying to."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_bundles import affine_bundle

from support.sshd import running_sshd


@pytest.fixture
def attic(board, tmp_path: Path) -> Iterator[Path]:
    """A second device, ``attic``, with nothing on it; its root."""
    root = tmp_path / "attic" / "edgectl"
    root.parent.mkdir()
    with running_sshd(tmp_path / "sshd2", settings=[f"SetEnv EDGECTL_ROOT={root}"]) as server:
        ssh = tmp_path / "home" / ".ssh"
        with (ssh / "config").open("a") as file:
            file.write(
                f"Host attic\n  HostName 127.0.0.1\n  Port {server.port}\n  User {server.user}\n"
                f"  IdentityFile {server.user_key}\n  IdentitiesOnly yes\n"
            )
        with (ssh / "known_hosts").open("a") as file:
            file.write(server.known_line)
        yield root


def test_two_devices_get_the_model_side_by_side_and_a_third_that_is_away_fails_alone(
    board, attic, tmp_path
):
    bundle = affine_bundle(tmp_path / "tiny.edgectl", precision="new")
    ended = board.edgectl(
        "deploy", bundle, "--device", "board,pi@127.0.0.1:1,attic", "--iterations", "1", "--json"
    ).expect(6)
    results = {d["device"]: d for d in ended.document["devices"]}
    assert [d["device"] for d in ended.document["devices"]] == ["board", "pi@127.0.0.1:1", "attic"]
    assert {name: d["exit_code"] for name, d in results.items()} == {
        "board": 0, "pi@127.0.0.1:1": 6, "attic": 0,
    }  # fmt: skip
    assert "refused the connection" in results["pi@127.0.0.1:1"]["document"]["error"]["message"]
    release = results["attic"]["document"]["release"]
    assert results["attic"]["document"]["outputs_match"]
    assert board.current() == (attic / "current").readlink().name == release
    again = board.edgectl("deploy", bundle, "--device", "board,attic", "--dry-run").expect(0)
    assert again.stdout.count("0 bytes; nothing was changed") >= 2, again.stdout


def test_a_second_deployment_is_refused_at_once_and_by_name(board, tmp_path):
    bundle = affine_bundle(tmp_path / "tiny.edgectl", precision="new")
    with (board.root / "session").open("w") as file:
        json.dump({"who": "bob@bench", "verb": "deploy", "pid": 4711, "token": "x"}, file)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        start = time.monotonic()
        error = board.edgectl("deploy", bundle).expect(75).stderr
        # Two seconds are promised; the rest is for a busy computer to start Python.
        assert time.monotonic() - start < 10.0
    assert "bob@bench" in error
    assert "4711" in error


def test_devices_are_named_once_and_outputs_are_of_one(board, tmp_path):
    bundle = affine_bundle(tmp_path / "tiny.edgectl", precision="new")
    twice = board.edgectl("deploy", bundle, "--device", "board,board").expect(2)
    assert "names a device twice" in twice.stderr
    board.edgectl("deploy", bundle, "--device", "board,").expect(2)
    output = board.edgectl(
        "deploy", bundle, "--device", "board,attic", "--output", tmp_path / "o.npz"
    ).expect(2)
    assert "for one device" in output.stderr
