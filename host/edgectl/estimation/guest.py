"""Runs aarch64 programs on this computer under qemu-user: the virtual Pi's file system, no SSH."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgectl.emulator.userland import ensure_userland
from edgectl.errors import EdgectlError
from edgectl.estimation.tools import Tools
from edgectl.remote.install import pack_runner
from edgectl.remote.wheelhouse import DevicePython, fetch_wheels
from edgectl.settings import Settings

__all__ = ["Guest", "make_guest"]

# What the virtual Pi's Debian 12 has.
_PYTHON = DevicePython(version=(3, 11), machine="aarch64", glibc=(2, 36))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A root folder with the device's Python, runtime and runner, and the emulator for it."""

    tools: Tools
    cpu: str
    root: Path
    site: Path
    runner: Path

    @property
    def python(self) -> Path:
        """The device's interpreter."""
        return self.root / "usr/bin/python3.11"

    def runtime_tool(self, name: str) -> Path:
        """A program of the runtime's wheel."""
        return self.site / "iree/_runtime_libs" / name

    def run(
        self,
        command: Sequence[str | Path],
        *,
        plugin: Mapping[str, str | Path] | None = None,
    ) -> str:
        """Runs a program; with our plugin where its arguments are given. Returns its output.

        Raises:
            EdgectlError: it failed.
        """
        emulator = [self.tools.qemu, "-cpu", self.cpu, "-L", str(self.root)]
        if plugin is not None:
            arguments = "".join(f",{name}={value}" for name, value in plugin.items())
            emulator += ["-plugin", f"{self.tools.plugin}{arguments}"]
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONHOME": str(self.root / "usr"),
            "PYTHONPATH": f"{self.site}:{self.runner}",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LC_ALL": "C.UTF-8",
        }
        run = subprocess.run(
            [*emulator, *map(str, command)],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if run.returncode != 0:
            words = (run.stderr.strip() or run.stdout.strip()).splitlines()
            raise EdgectlError(
                f"The module does not run under qemu: {words[-1][:300] if words else ''} "
                f"(exit code {run.returncode})",
                cause="It is compiled for another core, or qemu does not know an instruction.",
                next_step="Estimate with --static; `edgectl deploy --device emulator` says more.",
            )
        return run.stdout


def make_guest(tools: Tools, cpu: str, settings: Settings) -> Guest:
    """The guest for a core; what it consists of is built once and kept in the cache.

    Raises:
        DeviceError: the file system cannot be built.
        ConfigurationError: the runtime's wheels cannot be fetched.
    """
    root = ensure_userland(settings.cache_dir)
    wheels = fetch_wheels(_PYTHON, cache=settings.cache_dir / "wheels")
    folder = settings.cache_dir / "estimation"
    site = folder / f"site-{wheels.digest}"
    if not site.exists():
        _fill(site, [wheel.path for wheel in wheels.wheels])
    archive = pack_runner()
    runner = folder / f"runner-{archive.digest}.zip"
    if not runner.exists():
        partial = runner.with_suffix(".part")
        partial.write_bytes(archive.data)
        partial.replace(runner)
    return Guest(tools=tools, cpu=cpu, root=root, site=site, runner=runner)


def _fill(site: Path, wheels: Sequence[Path]) -> None:
    site.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=site.parent, prefix=".site-"))
    try:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(temporary)
        for tool in (temporary / "iree/_runtime_libs").glob("iree-*"):
            tool.chmod(0o755)
        temporary.chmod(0o755)
        temporary.replace(site)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
