"""From pipeline cycles and cache misses to cycles: a line through four numbers.

    cycles = pipeline * modelled cycles
           + exposed * (misses that the next cache answers, each at its latency)
           + dram * (bytes to and from DRAM over its bandwidth)
           + dispatch

Real cores hide a part of the waiting behind other work; ``exposed`` and ``dram`` say how much they
do not hide. The defaults are rules of thumb; `edgectl estimate --calibrate` fits all four to the
profile of a real board.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgectl.estimation.counting import MemoryTraffic
from edgectl_toolchains import CACHE_LINE_BYTES, Target

__all__ = ["DEFAULT_WEIGHTS", "CostTerms", "Weights", "cycles_of", "dram_bytes", "fit", "terms_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The four numbers of the model; ``dispatch`` is in cycles, the others are factors."""

    pipeline: float
    exposed: float
    dram: float
    dispatch: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTerms:
    """What the weights multiply, in cycles, for one dispatch."""

    pipeline: float
    caches: float
    dram: float


# In order, a core waits for most misses; out of order, for less than half of them.
DEFAULT_WEIGHTS = {
    "cortex-a53": Weights(pipeline=1.0, exposed=0.7, dram=0.8, dispatch=2000.0),
    "cortex-a72": Weights(pipeline=1.0, exposed=0.3, dram=0.5, dispatch=3000.0),
    "cortex-a76": Weights(pipeline=1.0, exposed=0.2, dram=0.5, dispatch=3000.0),
}


def dram_bytes(traffic: MemoryTraffic) -> int:
    """Bytes between the last cache and DRAM."""
    last = traffic.misses[-1] if traffic.misses else 0
    return (last + traffic.writebacks) * CACHE_LINE_BYTES


def terms_of(pipeline_cycles: float, traffic: MemoryTraffic, target: Target) -> CostTerms:
    """The terms of one dispatch on a board at its full clock."""
    caches = target.caches
    waiting = 0.0
    for level in range(1, len(caches)):
        answered = traffic.misses[level - 1] - traffic.misses[level]
        waiting += max(0, answered) * caches[level].latency_cycles
    seconds = dram_bytes(traffic) / (target.dram_gb_per_s * 1e9)
    return CostTerms(
        pipeline=pipeline_cycles, caches=waiting, dram=seconds * target.clock_mhz * 1e6
    )


def cycles_of(terms: CostTerms, weights: Weights) -> float:
    """Cycles of one dispatch."""
    return (
        weights.pipeline * terms.pipeline
        + weights.exposed * terms.caches
        + weights.dram * terms.dram
        + weights.dispatch
    )


def fit(terms: Sequence[CostTerms], cycles: Sequence[float]) -> Weights:
    """The weights, none of them negative, that come closest to measured cycles.

    Least squares over the dispatches. With four unknowns, every set of them that may be zero is
    tried, and the best solution without a negative number is exact.
    """
    matrix = np.array([[t.pipeline, t.caches, t.dram, 1.0] for t in terms], dtype=np.float64)
    wanted = np.array(cycles, dtype=np.float64)
    scale = np.maximum(matrix.max(axis=0), 1e-30)
    best, best_error = np.zeros(4), float(wanted @ wanted)
    for kept in range(1, 16):
        columns = [c for c in range(4) if kept >> c & 1]
        part, *_ = np.linalg.lstsq(matrix[:, columns] / scale[columns], wanted, rcond=None)
        if (part < 0).any():
            continue
        error = wanted - matrix[:, columns] / scale[columns] @ part
        if error @ error < best_error * (1 - 1e-9):
            best = np.zeros(4)
            best[columns] = part / scale[columns]
            best_error = float(error @ error)
    return Weights(pipeline=best[0], exposed=best[1], dram=best[2], dispatch=best[3])
