"""The whole service, natively on this computer: supervisor, worker, real sockets, real modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runner"))

from running_service import RunningService, new_service
from tiny_bundles import affine_bundle, counter_bundle


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningService]]:
    """Starts a service of ``bundles`` (name -> file); ended with the test."""
    service = new_service(tmp_path)

    def begin(bundles: dict[str, Path] | None = None, **options: Any) -> RunningService:
        service.install(bundles or {"affine": affine_bundle(tmp_path / "affine.edgectl")})
        service.start(**options)
        return service

    yield begin
    service.stop()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with a stateless and a stateful model, shared by the tests of a file."""
    folder = tmp_path_factory.mktemp("service")
    service = new_service(folder)
    service.install(
        {
            "affine": affine_bundle(folder / "affine.edgectl"),
            "counter": counter_bundle(folder / "counter.edgectl"),
        }
    )
    service.start()
    yield service
    service.stop()
