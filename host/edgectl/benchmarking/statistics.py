"""Statistics of latencies that assume no distribution.

Early stopping: MLPerf Inference's (inference_rules.adoc, appendix on early stopping; LoadGen's
early_stopping.cc with tolerance 0). A quantile's interval: two order statistics whose ranks come
from the binomial distribution (Hahn and Meeker, Statistical Intervals, 1991, section 5.2), which
holds for independent latencies of any distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

__all__ = [
    "CONFIDENCE",
    "binomial_cdf",
    "early_stopping",
    "min_queries",
    "quantile_interval",
    "tail_allowance",
]

CONFIDENCE = 0.99


def binomial_cdf(k: int, n: int, p: float) -> float:
    """P(X <= k) for X binomial with ``n`` trials of chance ``p``."""
    if k < 0:
        return 0.0
    if k >= n:
        return 1.0
    i = np.arange(k + 1)
    # Steps of log C(n, i): exact enough for a million trials, and no factorial overflows.
    steps = np.log((n - i[:-1]) / (i[:-1] + 1.0))
    log_choose = np.concatenate([[0.0], np.cumsum(steps)])
    terms = log_choose + i * math.log(p) + (n - i) * math.log1p(-p)
    return float(min(1.0, np.exp(terms).sum()))


def tail_allowance(queries: int, percentile: float, *, confidence: float = CONFIDENCE) -> int:
    """How many of ``queries`` may lie beyond the percentile while it still holds.

    The largest t with P(X <= t) <= 1 - confidence for X binomial with chance 1 - percentile/100;
    0 when there are too few queries for any (t counts from 1).
    """
    chance = 1.0 - percentile / 100.0
    low, high = 0, queries  # P(X <= t) grows with t
    if binomial_cdf(1, queries, chance) > 1.0 - confidence:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        if binomial_cdf(middle, queries, chance) <= 1.0 - confidence:
            low = middle
        else:
            high = middle - 1
    return low


def min_queries(percentile: float, *, tail: int = 1, confidence: float = CONFIDENCE) -> int:
    """The fewest queries of which ``tail`` may lie beyond it: 64 for p90, 662 for p99."""
    chance = 1.0 - percentile / 100.0
    low, high = tail, tail + 1
    while binomial_cdf(tail, high, chance) > 1.0 - confidence:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        if binomial_cdf(tail, middle, chance) <= 1.0 - confidence:
            high = middle
        else:
            low = middle + 1
    return low


def early_stopping(
    latencies: Sequence[float], percentile: float, *, confidence: float = CONFIDENCE
) -> float | None:
    """MLPerf's estimate: the t - 1 worst are dropped and the worst of the rest is it.

    With ``confidence``, the percentile is no larger. ``None`` below `min_queries` latencies.
    """
    allowed = tail_allowance(len(latencies), percentile, confidence=confidence)
    if allowed == 0:
        return None
    return float(np.sort(np.asarray(latencies, dtype=np.float64))[len(latencies) - allowed])


def quantile_interval(
    latencies: Sequence[float], percentile: float, *, confidence: float = CONFIDENCE
) -> tuple[float | None, float | None]:
    """Bounds of a quantile at two-sided ``confidence``; ``None`` on a side with no rank for it."""
    ordered = np.sort(np.asarray(latencies, dtype=np.float64))
    n, p, each = len(ordered), percentile / 100.0, (1.0 - confidence) / 2.0
    # X is the number of latencies below the quantile. The r-th smallest is at most the quantile
    # with chance P(X >= r), and more than it with chance P(X < r).
    low = _largest(n, lambda r: binomial_cdf(r - 1, n, p) <= each)
    high = _largest(n, lambda r: 1.0 - binomial_cdf(r - 1, n, p) > each) + 1
    return (
        float(ordered[low - 1]) if low >= 1 else None,
        float(ordered[high - 1]) if high <= n else None,
    )


def _largest(n: int, holds: Callable[[int], bool]) -> int:
    """The largest r in 1..n for which a condition that ends once holds; 0 if none."""
    low, high = 0, n
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
