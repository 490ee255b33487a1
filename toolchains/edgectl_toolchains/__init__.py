"""Targets (one TOML file per board) and NEON kernels: data that the host reads.

Adding a board is adding a file to ``targets/``; no Python changes.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

__all__ = ["Cache", "Target", "UnknownTargetError", "load_target", "target_names"]

CACHE_LINE_BYTES = 64


class UnknownTargetError(LookupError):
    """No target file of that name; ``known`` lists those there are."""

    def __init__(self, name: str, known: tuple[str, ...]):
        super().__init__(f"unknown target {name!r}")
        self.name = name
        self.known = known


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """One level of the data caches; ``latency_cycles`` is from the core to it and back."""

    size_kib: int
    ways: int
    latency_cycles: float

    @property
    def sets(self) -> int:
        """Sets of lines."""
        return self.size_kib * 1024 // (CACHE_LINE_BYTES * self.ways)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One board: what to compile for, and what it can do at best.

    ``peak_macs_per_cycle`` maps ``fp32``, ``fp16`` and ``int8`` to multiply-accumulates per
    cycle and core; it is what the roofline of a profile is drawn with. ``pipeline_model`` is
    llvm-mca's name of the core, ``cache_ways`` and ``cache_latency_cycles`` have one number for
    each level of cache that there is, the nearest first.
    """

    name: str
    title: str
    architecture: str
    triple: str
    cpu: str
    cpu_features: tuple[str, ...]
    part: str
    cores: int
    clock_mhz: int
    memory_mb: tuple[int, ...]
    dram_gb_per_s: float
    l1d_kib: int
    l2_kib: int
    l3_kib: int
    compile_flags: tuple[str, ...]
    backend: str
    driver: str
    glibc_min: str
    peak_macs_per_cycle: dict[str, float]
    pipeline_model: str = ""
    cache_ways: tuple[int, ...] = ()
    cache_latency_cycles: tuple[float, ...] = ()

    @property
    def caches(self) -> tuple[Cache, ...]:
        """The data caches, the nearest first; none where their ways are not known."""
        sizes = [size for size in (self.l1d_kib, self.l2_kib, self.l3_kib) if size]
        known = zip(sizes, self.cache_ways, self.cache_latency_cycles, strict=False)
        return tuple(Cache(size_kib=s, ways=w, latency_cycles=c) for s, w, c in known)

    @property
    def has_dotprod(self) -> bool:
        """Whether the core has SDOT/UDOT."""
        return "+dotprod" in self.cpu_features

    @property
    def has_fp16(self) -> bool:
        """Whether the core computes in half precision."""
        return "+fullfp16" in self.cpu_features


def target_names() -> tuple[str, ...]:
    """Names of all targets, sorted."""
    folder = files(__name__) / "targets"
    return tuple(
        sorted(
            entry.name.removesuffix(".toml")
            for entry in folder.iterdir()
            if entry.name.endswith(".toml")
        )
    )


def load_target(name: str) -> Target:
    """Reads ``targets/NAME.toml``.

    Raises:
        UnknownTargetError: there is no such file.
    """
    if name not in target_names():
        raise UnknownTargetError(name, target_names())
    document: dict[str, Any] = tomllib.loads(
        (files(__name__) / "targets" / f"{name}.toml").read_text(encoding="utf-8")
    )
    for key in ("cpu_features", "memory_mb", "compile_flags", "cache_ways", "cache_latency_cycles"):
        document[key] = tuple(document.get(key, ()))
    return Target(name=name, **document)
