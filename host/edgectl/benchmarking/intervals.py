"""Confidence intervals of a ratio of latencies, paired and unpaired; neither assumes a normal law.

Paired, for interleaved runs: the Hodges-Lehmann estimate and its exact interval from Wilcoxon's
signed-rank distribution (Hollander and Wolfe, Nonparametric Statistical Methods, sections 3.2 and
3.3), on the logarithms of the ratios of each round. It needs symmetry of the differences only,
which interleaving in random order brings, and one spoilt round moves it little.

Unpaired, for two finished runs: a moving-block bootstrap (Kuensch, 1989) of the ratio of
quantiles. Blocks, because one latency resembles the one before it: heat and clock change slowly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Interval", "paired_ratio", "rounds_needed", "unpaired_ratio"]

RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A ratio and its bounds."""

    ratio: float
    low: float
    high: float


def signed_rank_counts(n: int) -> list[int]:
    """How many of the 2^n sign patterns give each sum of positive ranks, from 0 up."""
    counts = [1]
    for rank in range(1, n + 1):
        longer = counts + [0] * rank
        for total, count in enumerate(counts):
            longer[total + rank] += count
        counts = longer
    return counts


def critical_rank(n: int, confidence: float) -> int:
    """How many Walsh averages lie outside each bound; 0 if ``n`` rounds are too few for it."""
    each, total, below = (1.0 - confidence) / 2.0, 2**n, 0
    for rank, count in enumerate(signed_rank_counts(n)):
        below += count
        if below / total > each:
            return rank
    return 0


def rounds_needed(confidence: float) -> int:
    """The fewest rounds that give an interval at this confidence: 8 at 0.99, 6 at 0.95."""
    return max(1, math.ceil(1.0 - math.log2(1.0 - confidence)))


def paired_ratio(a: Sequence[float], b: Sequence[float], *, confidence: float = 0.99) -> Interval:
    """b over a, from as many rounds of each, in order.

    Raises:
        ValueError: there are fewer than `rounds_needed`.
    """
    differences = np.log(np.asarray(b, dtype=np.float64) / np.asarray(a, dtype=np.float64))
    n = len(differences)
    outside = critical_rank(n, confidence)
    if outside == 0:
        raise ValueError(f"{n} rounds, {rounds_needed(confidence)} needed")
    first, second = np.triu_indices(n)
    averages = np.sort((differences[first] + differences[second]) / 2.0)
    return Interval(
        ratio=math.exp(float(np.median(averages))),
        low=math.exp(float(averages[outside - 1])),
        high=math.exp(float(averages[len(averages) - outside])),
    )


def unpaired_ratio(
    a: Sequence[float],
    b: Sequence[float],
    *,
    percentile: float = 50.0,
    confidence: float = 0.99,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval:
    """b's quantile over a's, from the latencies of two runs in the order they were taken."""
    source = np.random.default_rng(seed)
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    ratios = [
        float(
            np.percentile(_blocks(second, source), percentile)
            / np.percentile(_blocks(first, source), percentile)
        )
        for _ in range(resamples)
    ]
    each = 50.0 * (1.0 - confidence)
    low, high = np.percentile(ratios, [each, 100.0 - each])
    return Interval(
        ratio=float(np.percentile(second, percentile) / np.percentile(first, percentile)),
        low=float(low),
        high=float(high),
    )


def _blocks(values: np.ndarray, source: np.random.Generator) -> np.ndarray:
    """As many values, drawn as runs of neighbours of the cube root of their number, times two."""
    n = len(values)
    length = min(n, max(1, 2 * round(n ** (1 / 3))))
    starts = source.integers(0, n - length + 1, size=math.ceil(n / length))
    picked = (starts[:, None] + np.arange(length)[None, :]).reshape(-1)[:n]
    drawn: np.ndarray = values[picked]
    return drawn
