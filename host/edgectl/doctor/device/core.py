"""Can the core run code that was compiled for the target?"""

from __future__ import annotations

from edgectl.doctor.needs import Needs
from edgectl.doctor.result import CheckResult, failed, ok, unknown, warning
from edgectl.remote.facts import DeviceFacts

__all__ = ["check"]

_NAME = "core"

# LLVM's names of features and the kernel's in /proc/cpuinfo; those that need no check are left
# out (perfmon is for the kernel, v8a is what every one of these cores has).
_KERNEL_NAMES = {
    "fp-armv8": "fp",
    "neon": "asimd",
    "crc": "crc32",
    "aes": "aes",
    "sha2": "sha2",
    "lse": "atomics",
    "rdm": "asimdrdm",
    "rcpc": "lrcpc",
    "fullfp16": "asimdhp",
    "fp16fml": "asimdfhm",
    "dotprod": "asimddp",
    "sve": "sve",
    "sve2": "sve2",
    "i8mm": "i8mm",
    "bf16": "bf16",
}


def check(facts: DeviceFacts, needs: Needs) -> CheckResult:
    """A missing instruction ends a program with SIGILL, in the middle of a run."""
    shown = facts.core or "core not told"
    target = needs.target
    if target is None or target.architecture != "aarch64":
        return ok(_NAME, "device", shown)
    if facts.kernel_architecture != target.architecture:  # said by the check of architectures
        return ok(_NAME, "device", shown)
    if not facts.cpu_features:
        return unknown(
            _NAME,
            "device",
            "the device does not tell which instructions its core has",
            fix="check with: grep Features /proc/cpuinfo",
        )
    wanted = [f[1:] for f in target.cpu_features if f.startswith("+")]
    missing = [
        f for f in wanted if f in _KERNEL_NAMES and _KERNEL_NAMES[f] not in facts.cpu_features
    ]
    if missing:
        return failed(
            _NAME,
            "device",
            f"the core{f' ({facts.core})' if facts.core else ''} lacks {', '.join(missing)}, which"
            f" code for {target.name} ({target.cpu}) uses",
            fix="compile for this board: edgectl targets shows which there are",
        )
    if facts.cpu_part is not None and target.part and facts.cpu_part != target.part:
        return warning(
            _NAME,
            "device",
            f"the core is {shown}, the model is compiled for {target.cpu}: it runs, but slower"
            " than it could",
            fix="compile for this board to get its best speed",
        )
    return ok(_NAME, "device", shown)
