"""The highest rate of queries that a model serves within a bound: MLPerf's Server metric."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["highest_rate"]

TOLERANCE = 0.05
MAX_RUNS = 8


def highest_rate(holds: Callable[[float], bool], limit: float) -> float | None:
    """The highest rate at which ``holds`` was seen to be true, by bisection below ``limit``.

    Args:
        holds: makes a run at a rate (queries a second) and tells whether it kept the bound.
        limit: a rate that cannot be served: one over the mean time of a query.

    Returns:
        Within 5 % of where ``holds`` turns, and always a rate that was tried; ``None`` if it held
        at none.
    """
    low, high, best = 0.0, limit, None
    for _ in range(MAX_RUNS):
        rate = (low + high) / 2.0
        if holds(rate):
            low = best = rate
        else:
            high = rate
        if high - low <= TOLERANCE * high:
            break
    return best
