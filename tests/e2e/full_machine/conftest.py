"""A whole virtual Pi, booted once for these tests, and two small models for it."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "integration" / "runner"))

from tiny_bundles import AFFINE, affine_bundle, compile_mlir

from edgectl.emulator.full import Machine, find, machine_folder
from edgectl.settings import load_settings
from support.command import Edgectl, Ended

ROOT = "/home/pi/.local/share/edgectl"


@dataclass(frozen=True, slots=True, kw_only=True)
class WholePi:
    """``edgectl`` whose ``--device emulator`` is a whole machine."""

    edgectl: Edgectl
    old: Path
    new: Path

    @property
    def machine(self) -> Machine:
        """The machine that runs; another one after each start."""
        settings = load_settings({"EDGECTL_HOME": str(self.edgectl.home)})
        found = find(machine_folder(settings))
        assert found is not None
        return found

    def deploy(self, bundle: Path, *more: str, exit_code: int = 0) -> Ended:
        return self.edgectl(
            "deploy", bundle, "--device", "emulator", "--iterations", "1", "--json", *more
        ).expect(exit_code)

    def current(self) -> str:
        return self.machine.run(f"readlink {ROOT}/current").strip().removeprefix("releases/")

    def boot(self, *more: str) -> None:
        self.edgectl("emulator", "up", "--full", "--memory-mb", "1024", "-q", *more).expect(0)

    def cut_power(self) -> None:
        self.edgectl("emulator", "power-cut", "-q").expect(0)


def _bundle(path: Path, seed: int) -> Path:
    return affine_bundle(
        path,
        module=compile_mlir(AFFINE, "aarch64"),
        architecture="aarch64",
        target="rpi4",
        cpu="cortex-a72",
        precision=path.stem,
        extra={"weights.bin": random.Random(seed).randbytes(2_000_000)},
    )


@pytest.fixture(scope="module")
def pi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholePi]:
    folder = tmp_path_factory.mktemp("whole-pi")
    # The image is built once for all runs, as for users.
    (folder / "cache").symlink_to(load_settings().cache_dir)
    load_settings().cache_dir.mkdir(parents=True, exist_ok=True)
    pi = WholePi(
        edgectl=Edgectl(home=folder),
        old=_bundle(folder / "old.edgectl", 1),
        new=_bundle(folder / "new.edgectl", 2),
    )
    pi.boot()
    try:
        pi.deploy(pi.old)
        yield pi
    finally:
        pi.edgectl("emulator", "down", "-q").expect(0)
