"""The whole service, natively on this computer: supervisor, worker, real sockets, real modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runner"))

from running_service import RunningService
from tiny_bundles import LoopbackDevice, affine_bundle, counter_bundle, ready_handle

from edgectl.remote.push import push_bundle
from edgectl.serving import ModelToServe


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningService]]:
    """Starts a service of ``bundles`` (name -> file); ended with the test."""
    device = LoopbackDevice(tmp_path / "home" / "edgectl")
    handle = ready_handle(device)
    service = RunningService(device=device, handle=handle)

    def begin(bundles: dict[str, Path] | None = None, **options: Any) -> RunningService:
        bundles = bundles or {"affine": affine_bundle(tmp_path / "affine.edgectl")}
        service.models = tuple(
            ModelToServe(name=name, release=push_bundle(device, handle, path).release)
            for name, path in bundles.items()
        )
        service.start(**options)
        return service

    yield begin
    service.stop()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with a stateless and a stateful model, shared by the tests of a file."""
    folder = tmp_path_factory.mktemp("service")
    device = LoopbackDevice(folder / "home" / "edgectl")
    handle = ready_handle(device)
    bundles = {
        "affine": affine_bundle(folder / "affine.edgectl"),
        "counter": counter_bundle(folder / "counter.edgectl"),
    }
    service = RunningService(device=device, handle=handle)
    service.models = tuple(
        ModelToServe(name=name, release=push_bundle(device, handle, path).release)
        for name, path in bundles.items()
    )
    service.start()
    yield service
    service.stop()
