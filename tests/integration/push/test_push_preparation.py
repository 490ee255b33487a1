"""Getting a device ready: interrupted, broken and repeated; and several deployments at once."""

from __future__ import annotations

import hashlib
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_bundles import LoopbackDevice, ready_handle

from edgectl.errors import BusyError, ConnectionFailedError, DeviceError
from edgectl.remote.agent_calls import call_runner
from edgectl.remote.install import pack_runner, prepare_device
from edgectl.remote.push import push_bundle
from edgectl.remote.wheelhouse import DevicePython, Wheel, WheelSet

Bundles = Callable[..., Path]


@pytest.fixture
def wheels(tmp_path: Path) -> WheelSet:
    """Two wheels of a megabyte; one holds what is left out on devices."""
    found = []
    for name in ("edge_one", "edge_two"):
        path = tmp_path / f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{name}/__init__.py", f"x = {name!r}\n" + "#" * 1_000_000)
            archive.writestr(f"{name}/tests/test_it.py", "")
            archive.writestr(f"{name}/py.typed.pyi", "")
        data = path.read_bytes()
        found.append(
            Wheel(path=path, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        )
    digest = hashlib.sha256("".join(w.sha256 for w in found).encode()).hexdigest()[:16]
    return WheelSet(digest=digest, wheels=tuple(found))


def prepare(device: LoopbackDevice, wheels: WheelSet, **options: Any) -> Any:
    device.root.parent.mkdir(parents=True, exist_ok=True)

    def fetch(_python: DevicePython, cache: Path | None = None) -> WheelSet:
        return wheels

    return prepare_device(device, python=sys.executable, fetch=fetch, **options)


def test_packages_are_unpacked_without_what_a_device_does_not_need(
    device: LoopbackDevice, wheels: WheelSet
) -> None:
    seen: list[tuple[int, int]] = []
    handle = prepare(device, wheels, progress=lambda done, total: seen.append((done, total)))
    folder = device.root / "env" / handle.environment_digest
    assert (folder / "edge_one" / "__init__.py").exists()
    assert not (folder / "edge_one" / "tests").exists()
    assert not list(folder.rglob("*.pyi"))
    assert list((device.root / "incoming").iterdir()) == []
    total = sum(w.size_bytes for w in wheels.wheels)
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert prepare(device, wheels).bytes_sent == 0


def test_an_interrupt_while_packages_travel_leaves_the_device_clean(
    tmp_path: Path, wheels: WheelSet
) -> None:
    class Interrupted(LoopbackDevice):
        def put(self, source: Any, destination: str, **options: Any) -> int:
            if "edge_two" in destination:
                raise KeyboardInterrupt
            return super().put(source, destination, **options)

    device = Interrupted(tmp_path / "home" / "edgectl")
    with pytest.raises(KeyboardInterrupt):
        prepare(device, wheels)
    assert list((device.root / "incoming").iterdir()) == []
    assert prepare(LoopbackDevice(device.root), wheels).bytes_sent > 0


def test_a_broken_connection_while_packages_travel_costs_only_the_rest(
    tmp_path: Path, wheels: WheelSet
) -> None:
    class Breaking(LoopbackDevice):
        def put(self, source: Any, destination: str, *, offset: int = 0, **options: Any) -> int:
            if "edge_two" in destination:
                data = source.read_bytes()
                Path(destination + ".part").write_bytes(data[:600_000])
                raise ConnectionFailedError("reset by peer")
            return super().put(source, destination, offset=offset, **options)

    device = Breaking(tmp_path / "home" / "edgectl")
    with pytest.raises(ConnectionFailedError):
        prepare(device, wheels)
    again = prepare(LoopbackDevice(device.root), wheels)
    assert again.bytes_sent < 500_000


def test_a_wheel_that_arrives_damaged_is_not_opened(tmp_path: Path, wheels: WheelSet) -> None:
    class Damaging(LoopbackDevice):
        def put(self, source: Any, destination: str, **options: Any) -> int:
            data = bytearray(source.read_bytes())
            data[500] ^= 1
            return super().put(bytes(data), destination, **options)

    device = Damaging(tmp_path / "home" / "edgectl")
    with pytest.raises(DeviceError, match="arrived damaged"):
        prepare(device, wheels)
    assert list((device.root / "env").glob("*")) == []
    assert list((device.root / "incoming").iterdir()) == []


@pytest.mark.parametrize("name", ["../../evil.py", "/tmp/evil.py", "a/../../evil.py"])
def test_a_wheel_that_reaches_outside_is_refused(
    tmp_path: Path, device: LoopbackDevice, name: str
) -> None:
    path = tmp_path / "evil-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "print('evil')")
    data = path.read_bytes()
    wheel = Wheel(path=path, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
    with pytest.raises(DeviceError, match="unsafe name"):
        prepare(device, WheelSet(digest=wheel.sha256[:16], wheels=(wheel,)))
    assert not list(tmp_path.rglob("evil.py"))


def test_the_same_sources_make_the_same_archive() -> None:
    assert pack_runner() == pack_runner()


def test_deployments_at_once_end_whole_or_busy(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    bundles = [affine(f"{n}.edgectl", precision=f"p{n}") for n in range(4)]
    outcomes: list[str] = []

    def deploy(bundle: Path) -> None:
        mine = LoopbackDevice(device.root)
        try:
            outcomes.append(push_bundle(mine, handle, bundle).release)
        except BusyError:
            outcomes.append("busy")

    threads = [threading.Thread(target=deploy, args=(b,)) for b in bundles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 4
    assert any(o != "busy" for o in outcomes)
    current = call_runner(device, handle, "status", {})["current"]
    assert current in outcomes
    assert call_runner(device, handle, "verify", {})["intact"] is True
    for bundle in bundles:
        assert push_bundle(device, handle, bundle).healthy is not False


def test_an_old_runner_on_the_device_is_left_alone(
    device: LoopbackDevice, wheels: WheelSet
) -> None:
    old = device.root / "runner" / "0123456789abcdef" / "edgectl_runner"
    old.mkdir(parents=True)
    (old / "__main__.py").write_text("print('old')")
    prepare(device, wheels)
    assert (old / "__main__.py").read_text() == "print('old')"
    assert ready_handle(LoopbackDevice(device.root)).runner_digest != "0123456789abcdef"
