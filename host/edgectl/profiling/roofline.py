"""How far a layer is from what the core can do at best (Williams, Waterman, Patterson 2009).

A layer takes at least its multiply-accumulates over the core's peak, and at least its bytes over
the memory's bandwidth. The larger of the two is its limit. Bytes are the sizes of its operands and
results: where they fit the last cache they need not come from DRAM, so the memory's limit is only
taken for what cannot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgectl.records import DispatchCall
from edgectl_toolchains import Target

__all__ = ["Roofline", "peak_of", "roofline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The least that a layer can take; ``bound`` says which limit that is."""

    limit_ms: float
    bound: Literal["compute", "memory"]


def peak_of(precision: str, *, integer: bool, target: Target) -> float:
    """Multiply-accumulates per cycle and core at best."""
    peaks = target.peak_macs_per_cycle
    if integer:
        return peaks["int8"]
    return peaks["fp16"] if precision == "fp16" and target.has_fp16 else peaks["fp32"]


def roofline(call: DispatchCall, target: Target, *, precision: str, threads: int) -> Roofline:
    """The limit of one call of the program.

    Args:
        call: the dispatch.
        target: the board.
        precision: the bundle's.
        threads: how many cores may work on it.
    """
    hertz = target.clock_mhz * 1e6
    peak = peak_of(precision, integer=call.integer, target=target)
    compute_s = call.macs / (peak * hertz * min(threads, target.cores))
    moved = call.read_bytes + call.written_bytes
    cached = moved <= max(target.l2_kib, target.l3_kib) * 1024
    memory_s = 0.0 if cached else moved / (target.dram_gb_per_s * 1e9)
    if memory_s > compute_s:
        return Roofline(limit_ms=memory_s * 1e3, bound="memory")
    return Roofline(limit_ms=compute_s * 1e3, bound="compute")
