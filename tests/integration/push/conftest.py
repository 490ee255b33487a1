"""Compiled test modules and a device that is this computer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runner"))

from tiny_bundles import LoopbackDevice, affine_bundle, counter_bundle, ready_handle


@pytest.fixture
def device(tmp_path: Path) -> LoopbackDevice:
    return LoopbackDevice(tmp_path / "home" / "edgectl")


@pytest.fixture
def handle(device: LoopbackDevice) -> Any:
    return ready_handle(device)


@pytest.fixture
def affine(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "affine.edgectl", /, **changes: Any) -> Path:
        return affine_bundle(tmp_path / name, **changes)

    return make


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    return counter_bundle(tmp_path / "counter.edgectl")
