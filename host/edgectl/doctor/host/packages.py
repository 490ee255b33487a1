"""Are the compiler packages the ones that were tested together?

torch-mlir writes what iree-compile reads, and both change weekly: another pair may compile wrong
code without a word.
"""

from __future__ import annotations

import re
from importlib import metadata

from edgectl.doctor.result import CheckResult, failed, ok, unknown
from edgectl.settings import Settings

__all__ = ["check", "satisfies"]

_DISTRIBUTION = "edgectl-toolkit"
_PACKAGES = (
    *("torch", "torchao", "torch-mlir", "iree-base-compiler", "iree-base-runtime"),
    *("numpy", "paramiko"),
)


def check(_settings: Settings) -> CheckResult:
    """Compares what is installed with what edgectl's own metadata asks for."""
    try:
        wanted = _requirements(metadata.requires(_DISTRIBUTION) or [])
    except metadata.PackageNotFoundError:
        return unknown(
            "packages",
            "host",
            "edgectl runs from its sources without being installed",
            fix="install it: pip install -e .",
        )
    wrong: list[str] = []
    found: dict[str, str] = {}
    for name in _PACKAGES:
        if name not in wanted:
            continue
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is missing ({wanted[name]} is wanted)")
            continue
        if not satisfies(found[name], wanted[name]):
            wrong.append(f"{name} {found[name]} is installed, {wanted[name]} is wanted")
    compiler, runtime = found.get("iree-base-compiler"), found.get("iree-base-runtime")
    if compiler is not None and runtime is not None and compiler != runtime:
        wrong.append(f"IREE's compiler is {compiler} and its runtime {runtime}")
    if wrong:
        return failed(
            "packages",
            "host",
            "; ".join(wrong),
            fix="install edgectl again in a fresh virtual environment",
        )
    return ok("packages", "host", ", ".join(f"{n} {v}" for n, v in found.items()))


def satisfies(version: str, specifier: str) -> bool:
    """Whether a version fits a specifier of ``==``, ``==X.*``, ``>=`` and ``<`` parts."""
    have = _release(version)
    for part in specifier.split(","):
        match = re.fullmatch(r"\s*(==|>=|<)\s*([0-9.]+?)(\.\*)?\s*", part)
        if match is None:
            return False
        operator, bound = match[1], _release(match[2])
        width = max(len(have), len(bound))
        padded, limit = (value + (0,) * (width - len(value)) for value in (have, bound))
        fits = {
            "==": padded[: len(bound)] == bound if match[3] else padded == limit,
            ">=": padded >= limit,
            "<": padded < limit,
        }[operator]
        if not fits:
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    """The numbers in front: ``2.13.0+cpu`` is (2, 13, 0)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()


def _requirements(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        match = re.match(r"([A-Za-z0-9._-]+)\s*\(?([^;)]*)", line)
        if match is not None and "extra ==" not in line:
            found[match[1].lower()] = match[2].strip()
    return found
