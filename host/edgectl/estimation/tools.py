"""The programs of this computer that an estimate stands on, and the plugin built for it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from edgectl.errors import ConfigurationError

__all__ = ["Tools", "find_tools"]

# llvm-mca's models of these cores grew better over the versions: the newest is taken.
_LLVM_VERSIONS = ("19", "20", "21", "18", "17", "16")
_STATIC_ONLY = "or leave the emulation out with --static"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Paths of qemu's emulator with plugins, of LLVM's tools, and of the compiled plugin."""

    qemu: str
    llvm_mc: str
    llvm_mca: str
    plugin: Path


def find_tools(cache_dir: Path) -> Tools:
    """Finds the programs and builds the plugin.

    Raises:
        ConfigurationError: one is missing or cannot do what is needed; the message has the command
            that installs it.
    """
    qemu = shutil.which("qemu-aarch64")
    llvm = next((v for v in _LLVM_VERSIONS if _has_llvm(f"-{v}")), None)
    missing = [
        *(["qemu-user"] if qemu is None else []),
        *(["llvm-19"] if llvm is None else []),
    ]
    if missing or qemu is None or llvm is None:
        raise ConfigurationError(
            f"An estimate needs programs that this computer lacks: {', '.join(missing)}.",
            cause="It counts instructions under qemu and puts them through llvm-mca.",
            next_step=f"sudo apt-get install {' '.join(missing)}, {_STATIC_ONLY}",
        )
    if not _takes_plugins(qemu):
        raise ConfigurationError(
            f"{qemu} was built without plugins.",
            cause="It is a static build (qemu-user-static), or an old one.",
            next_step=f"sudo apt-get install qemu-user, {_STATIC_ONLY}",
        )
    return Tools(
        qemu=qemu,
        llvm_mc=f"llvm-mc-{llvm}",
        llvm_mca=f"llvm-mca-{llvm}",
        plugin=_plugin(cache_dir),
    )


def _has_llvm(suffix: str) -> bool:
    return all(shutil.which(name + suffix) for name in ("llvm-mc", "llvm-mca"))


def _takes_plugins(qemu: str) -> bool:
    run = subprocess.run([qemu, "--help"], capture_output=True, text=True, check=False)
    return "-plugin" in run.stdout


def _plugin(cache_dir: Path) -> Path:
    source = files("edgectl_toolchains") / "plugin" / "block_costs.c"
    text = source.read_bytes()
    folder = cache_dir / "estimation"
    built = folder / f"block_costs-{hashlib.sha256(text).hexdigest()[:16]}.so"
    if built.exists():
        return built
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        code, library = Path(scratch) / "block_costs.c", Path(scratch) / "block_costs.so"
        code.write_bytes(text)
        # qemu itself has the functions that stay undefined here.
        command = [sys.executable, "-m", "ziglang", "cc", "-O2", "-shared", "-fPIC"]
        command += ["-fno-sanitize=all", "-Wl,-z,undefs", "-o", str(library), str(code)]
        run = subprocess.run(
            command, capture_output=True, text=True, check=False, env=dict(os.environ)
        )
        if run.returncode != 0:
            raise ConfigurationError(
                f"The plugin for qemu does not compile: {run.stderr.strip()[-300:]}",
                cause="The ziglang package is damaged or too old.",
                next_step=f"pip install --force-reinstall ziglang, {_STATIC_ONLY}",
            )
        library.replace(built)
    return built
