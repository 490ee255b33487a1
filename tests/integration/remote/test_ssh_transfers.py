"""Files: whole or not at all, counted, resumed, and cleaned up after."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgectl.errors import DeviceError, UsageError
from edgectl.remote.base import Device
from edgectl.remote.fake import FakeDevice
from edgectl.remote.local import LocalDevice
from edgectl.remote.ssh import SshDevice, connect
from edgectl.remote.ssh_options import SshOptions
from support.sshd import Sshd, running_sshd

Options = Callable[..., SshOptions]


@pytest.fixture(params=["ssh", "local", "fake"])
def any_device(request: pytest.FixtureRequest) -> Device:
    if request.param == "ssh":
        ssh: SshDevice = request.getfixturevalue("device")
        return ssh
    return LocalDevice() if request.param == "local" else FakeDevice()


@pytest.mark.parametrize("size", [0, 1, 32768, 3_000_001])
def test_what_was_put_comes_back(any_device: Device, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    destination = str(tmp_path / "file with 'quotes' and ünïcode")
    seen: list[tuple[int, int]] = []
    sent = any_device.put(
        data, destination, progress=lambda done, total: seen.append((done, total))
    )
    assert sent == size
    assert any_device.get(destination) == data
    assert any_device.partial_size(destination) == 0
    if size:
        assert seen[-1] == (size, size)
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_put_of_a_file_sets_the_mode_and_replaces(device: SshDevice, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"new")
    target = tmp_path / "target"
    target.write_bytes(b"old and longer")
    with target.open("rb") as held_open:  # as a running service holds its model
        assert device.put(source, str(target), mode=0o755) == 3
        assert held_open.read() == b"old and longer"
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o755
    assert not list(tmp_path.glob("*.part"))


def test_put_goes_on_from_an_offset(any_device: Device, tmp_path: Path) -> None:
    data = os.urandom(200_000)
    destination = str(tmp_path / "file")
    if isinstance(any_device, FakeDevice):
        any_device.files[destination + ".part"] = data[:150_000] + b"later garbage"
    else:
        Path(destination + ".part").write_bytes(data[:150_000] + b"later garbage")
    assert any_device.partial_size(destination) == 150_013
    assert any_device.put(data, destination, offset=150_000) == 50_000
    assert any_device.get(destination) == data


def test_put_does_not_go_on_from_what_is_not_there(any_device: Device, tmp_path: Path) -> None:
    with pytest.raises(DeviceError):
        any_device.put(b"0123456789", str(tmp_path / "file"), offset=5)
    assert not (tmp_path / "file").exists()


def test_put_into_a_missing_folder(device: SshDevice, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="does not exist"):
        device.put(b"x", str(tmp_path / "missing" / "file"))
    assert device.put(b"x", str(tmp_path / "file")) == 1, "the device stays usable"


def test_get_of_missing_large_and_special_files(device: SshDevice, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="does not exist"):
        device.get(str(tmp_path / "missing"))
    (tmp_path / "large").write_bytes(b"x" * 1000)
    with pytest.raises(DeviceError, match="no more than 999"):
        device.get(str(tmp_path / "large"), max_bytes=999)
    with pytest.raises(DeviceError, match="not a file"):
        device.get(str(tmp_path))
    assert device.get("/proc/self/status").startswith(b"Name:"), "files without a size are read"


def test_missing_source_is_a_usage_error(device: SshDevice, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        device.put(tmp_path / "missing", str(tmp_path / "file"))


@pytest.mark.parametrize("new_size", [390_000, 400_001])
def test_source_that_changes_meanwhile_is_refused(
    device: SshDevice, tmp_path: Path, new_size: int
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 400_000)
    with pytest.raises(UsageError, match="changed while it was being sent"):
        device.put(
            source, str(tmp_path / "file"), progress=lambda *_: os.truncate(source, new_size)
        )
    assert not (tmp_path / "file").exists()
    assert not list(tmp_path.glob("*.part"))


def test_ctrl_c_leaves_nothing_behind(device: SshDevice, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")

    def interrupt(done: int, _total: int) -> None:
        if done > 1_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        device.put(b"x" * 8_000_000, str(target), progress=interrupt)
    assert target.read_bytes() == b"old"
    assert not list(tmp_path.glob("*.part"))
    assert device.run(["echo", "usable"]).stdout == b"usable\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("size", [2_100_000, 8_000_000])
def test_full_disk_is_named_and_freed(device: SshDevice, small_disk: Path, size: int) -> None:
    """Also when it fills up in the last few requests of the file."""
    (small_disk / "old").write_bytes(b"old")
    with pytest.raises(DeviceError, match=r"disk of .* is full") as caught:
        device.put(os.urandom(size), str(small_disk / "file"))
    assert str(small_disk) in caught.value.message
    assert sorted(p.name for p in small_disk.iterdir()) == ["old"]


def test_disk_without_inodes_is_named(device: SshDevice, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,nr_inodes=2", str(small_disk)], check=True)
    (small_disk / "old").write_bytes(b"old")
    with pytest.raises(DeviceError, match=r"disk of .* is full: 0 inodes left"):
        device.put(b"x", str(small_disk / "file"))


def test_read_only_folder(device: SshDevice, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(DeviceError) as caught:
        device.put(b"x", str(small_disk / "file"))
    assert str(small_disk) in caught.value.message


def test_device_without_sftp(options_for: Options, tmp_path: Path) -> None:
    with (
        running_sshd(tmp_path / "bare", settings=["ForceCommand /bin/false"]) as bare,
        connect(bare.destination, options=options_for(bare)) as device,
        pytest.raises(DeviceError, match="no SFTP server"),
    ):
        device.put(b"x", str(tmp_path / "file"))


_UPLOAD = """
import sys
from pathlib import Path
from edgectl.remote.ssh import connect
from edgectl.remote.ssh_options import SshOptions

destination, home, key, source, target = sys.argv[1:]
options = SshOptions(
    home=Path(home), known_hosts_file=Path(home, "k"), system_config_file=Path(home, "s"),
    identity_file=Path(key), agent_socket=None,
)
with connect(destination, options=options) as device:
    device.put(
        Path(source), target, offset=device.partial_size(target),
        progress=lambda done, total: print(done, flush=True),
    )
"""


def test_host_killed_at_random_leaves_the_old_file_and_a_part_to_go_on_from(
    sshd: Sshd, options_for: Options, device: SshDevice, tmp_path: Path
) -> None:
    options = options_for(sshd)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(30_000_000))
    target.write_bytes(b"old")
    arguments = [sshd.destination, str(options.home), str(sshd.user_key), str(source), str(target)]
    for share in (0.1, 0.5, 0.9):
        with subprocess.Popen(
            [sys.executable, "-c", _UPLOAD, *arguments], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if int(line) >= share * 30_000_000:
                    child.kill()
                    break
        assert target.read_bytes() == b"old"
        assert device.partial_size(str(target)) >= share * 30_000_000 - 1_100_000
    assert device.put(source, str(target), offset=device.partial_size(str(target))) < 5_000_000
    assert target.read_bytes() == source.read_bytes()
