"""A device that is this computer, with compiled models of a few kilobytes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runner"))

from tiny_bundles import LoopbackDevice, affine_bundle, ready_handle

from edgectl.benchmarking import Session
from edgectl.bundle import read_bundle
from edgectl.hooks import Hooks
from edgectl.records import Bundle
from edgectl.remote.facts import gather_facts
from edgectl.settings import load_settings


class Board(LoopbackDevice):
    """The same with a ``vcgencmd`` of our own, first on PATH."""

    def __init__(self, folder: Path, throttled: str):
        super().__init__(folder / "home" / "edgectl")
        tools = folder / "tools"
        tools.mkdir()
        tool = tools / "vcgencmd"
        tool.write_text(f"#!/bin/sh\n{throttled}\n")
        tool.chmod(0o755)
        self._environment["PATH"] = f"{tools}:{self._environment['PATH']}"


@pytest.fixture
def session(tmp_path: Path) -> Callable[..., Session]:
    """A session on this computer, whose firmware answers with the shell line given."""

    def make(throttled: str = "echo throttled=0x0") -> Session:
        device = Board(tmp_path, throttled)
        handle = ready_handle(_plain(device))
        return Session(
            device=device,
            handle=handle,
            facts=gather_facts(device),
            settings=load_settings({"EDGECTL_HOME": str(tmp_path / "host")}),
            hooks=Hooks(),
        )

    return make


def _plain(device: Board) -> LoopbackDevice:
    """The same root folder; preparing it needs no tools."""
    return LoopbackDevice(device.root)


@pytest.fixture
def affine(tmp_path: Path) -> Callable[..., Bundle]:
    def make(name: str = "affine.edgectl", /, **changes: object) -> Bundle:
        return read_bundle(affine_bundle(tmp_path / name, **changes))

    return make
