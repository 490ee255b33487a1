"""Can this processor run that module: architecture and instruction-set features, before loading.

Both are checked before the IREE runtime sees the file, because a wrong architecture ends in a
page of loader text there and a missing feature in a killed process.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from edgectl_runner.failures import RunnerError

__all__ = [
    "available_features",
    "check_architecture",
    "check_features",
    "missing_features",
    "module_architectures",
]

_ELF_MAGIC = b"\x7fELF"
_ELF_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}

# LLVM's name of a feature -> (auxiliary vector entry, bit) in the kernel's uapi/asm/hwcap.h.
# Features that no user program can trip over (perfmon) and errata switches are not listed.
_AT_HWCAP, _AT_HWCAP2 = 16, 26
_AARCH64_BITS: dict[str, tuple[int, int]] = {
    "fp-armv8": (_AT_HWCAP, 0),
    "neon": (_AT_HWCAP, 1),
    "aes": (_AT_HWCAP, 3),
    "sha2": (_AT_HWCAP, 6),
    "crc": (_AT_HWCAP, 7),
    "lse": (_AT_HWCAP, 8),
    "fullfp16": (_AT_HWCAP, 10),
    "rdm": (_AT_HWCAP, 12),
    "jsconv": (_AT_HWCAP, 13),
    "complxnum": (_AT_HWCAP, 14),
    "rcpc": (_AT_HWCAP, 15),
    "sha3": (_AT_HWCAP, 17),
    "sm4": (_AT_HWCAP, 19),
    "dotprod": (_AT_HWCAP, 20),
    "sve": (_AT_HWCAP, 22),
    "fp16fml": (_AT_HWCAP, 23),
    "rcpc-immo": (_AT_HWCAP, 26),
    "sve2": (_AT_HWCAP2, 1),
    "i8mm": (_AT_HWCAP2, 13),
    "bf16": (_AT_HWCAP2, 14),
}
# LLVM and the kernel spell some x86 features differently.
_X86_SPELLING = {"sse4.1": "sse4_1", "sse4.2": "sse4_2", "sse3": "pni", "lzcnt": "abm"}


def module_architectures(module: Path) -> tuple[str, ...]:
    """Architectures of the native code inside a ``.vmfb``, from the ELF headers in it.

    Empty when there is none (a module without dispatches, or one linked by the system linker
    into something else).
    """
    found: set[str] = set()
    if module.stat().st_size == 0:
        return ()
    with module.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        at = view.find(_ELF_MAGIC)
        while at != -1:
            header = view[at : at + 20]
            # 64-bit (2) or 32-bit (1), little endian (1), version 1: else it is not an ELF.
            if len(header) == 20 and header[4] in (1, 2) and header[5] == 1 and header[6] == 1:
                (machine,) = struct.unpack_from("<H", header, 18)
                found.add(_ELF_MACHINES.get(machine, f"ELF machine {machine}"))
            at = view.find(_ELF_MAGIC, at + 4)
    return tuple(sorted(found))


def check_architecture(module: Path, recorded: str) -> None:
    """Refuses a module whose native code is for another architecture than this machine's.

    Args:
        module: the ``.vmfb``.
        recorded: what the manifest says; used when the file itself does not tell.

    Raises:
        RunnerError: exit code 7, naming both architectures.
    """
    here = os.uname().machine
    inside = module_architectures(module)
    wanted = inside or ((recorded,) if recorded else ())
    if wanted and here not in wanted:
        raise RunnerError(
            f"artifact is {', '.join(wanted)}, device is {here}",
            cause="the model was compiled for another kind of computer",
            next_step="compile it again with --target naming this board",
        )


def available_features() -> frozenset[str] | None:
    """LLVM names of the instruction-set features here; ``None`` when the kernel does not tell."""
    machine = os.uname().machine
    try:
        if machine == "aarch64":
            return _aarch64_features(Path("/proc/self/auxv").read_bytes())
        if machine == "x86_64":
            return _x86_features(
                Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
            )
    except OSError:
        return None
    return None


def _aarch64_features(auxiliary_vector: bytes) -> frozenset[str] | None:
    usable = len(auxiliary_vector) // 16 * 16
    entries = dict(struct.iter_unpack("<QQ", auxiliary_vector[:usable]))
    if _AT_HWCAP not in entries:
        return None
    return frozenset(
        name for name, (word, bit) in _AARCH64_BITS.items() if entries.get(word, 0) >> bit & 1
    )


def _x86_features(cpuinfo: str) -> frozenset[str] | None:
    for line in cpuinfo.splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return None


def missing_features(wanted: Iterable[str]) -> tuple[str, ...]:
    """Features (LLVM spelling, ``+name``) that a module needs and this processor lacks.

    Features whose presence cannot be asked for are not reported.
    """
    have = available_features()
    if have is None:
        return ()
    machine = os.uname().machine
    missing = []
    for feature in wanted:
        if not feature.startswith("+"):
            continue
        name = feature[1:]
        if machine == "x86_64":
            known = _X86_SPELLING.get(name, name.replace("-", "_"))
            # The kernel does not list every feature LLVM knows; only report the large families.
            if known.startswith(("avx", "fma", "sse", "f16c", "bmi")) and known not in have:
                missing.append(name)
        elif name in _AARCH64_BITS and name not in have:
            missing.append(name)
    return tuple(missing)


def check_features(wanted: Iterable[str], target: str) -> None:
    """Refuses a module that uses instructions this processor does not have.

    Raises:
        RunnerError: exit code 7, naming the features.
    """
    missing = missing_features(wanted)
    if missing:
        raise RunnerError(
            f"the model was compiled for {target} and needs {', '.join(missing)}; "
            f"this device's processor has no {' and no '.join(missing)}",
            cause="the target names a newer core than the one in this board",
            next_step="compile it again with --target naming this board",
        )
