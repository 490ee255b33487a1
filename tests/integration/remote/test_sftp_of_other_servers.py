"""Servers that keep to the SFTP standard and do no more than that."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgectl.remote.ssh import SshDevice, connect
from edgectl.remote.ssh_options import SshOptions
from support.odd_sftp_server import odd_sftp_server


@pytest.fixture
def odd_device(options_for: Callable[..., SshOptions], home: Path) -> Iterator[SshDevice]:
    with odd_sftp_server() as (port, line):
        (home / ".ssh" / "known_hosts").write_text(line)
        with connect(f"anybody@127.0.0.1:{port}", options=options_for(emulated=False)) as device:
            yield device


def test_reads_that_return_too_little_are_completed(odd_device: SshDevice, tmp_path: Path) -> None:
    data = os.urandom(200_001)
    (tmp_path / "file").write_bytes(data)
    assert odd_device.get(str(tmp_path / "file")) == data


def test_without_posix_rename_an_existing_file_is_still_replaced(
    odd_device: SshDevice, tmp_path: Path
) -> None:
    target = tmp_path / "file"
    for data in (b"first", os.urandom(100_000)):
        assert odd_device.put(data, str(target)) == len(data)
        assert target.read_bytes() == data
        assert not target.with_name("file.part").exists()


def test_login_without_any_credentials(odd_device: SshDevice) -> None:
    assert odd_device.label.startswith("anybody@127.0.0.1:")
