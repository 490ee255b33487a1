"""Times calls of an engine: warm-up, a monotonic clock, and quantiles.

Only ``Engine.invoke`` lies between the two readings of the clock; building argument lists,
carrying states and keeping the numbers happen outside.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence

from edgectl_runner.contract import LatencySummary
from edgectl_runner.engine import Engine, PreparedCall

__all__ = ["measure", "quantile", "summarize"]

MAX_ITERATIONS = 1_000_000


def measure(
    engine: Engine,
    prepared: PreparedCall,
    *,
    warmup_iterations: int,
    iterations: int,
    min_seconds: float = 0.0,
    keep_going: Callable[[], bool] = lambda: True,
) -> list[float]:
    """Latencies in milliseconds, one per timed call.

    Runs at least ``iterations`` calls and at least ``min_seconds`` seconds of them; stops early
    when ``keep_going`` (asked between calls) says no. States run on from call to call.
    """
    clock = time.perf_counter_ns
    invoke = engine.invoke
    latencies_ns: list[int] = []
    stateful = bool(engine.entry.states)
    arguments = engine.arguments(prepared)
    collecting = gc.isenabled()
    gc.disable()  # a collection between the clock readings would be counted as the model's
    try:
        spent_ns = 0
        enough_ns = int(min_seconds * 1e9)
        warmups_left = warmup_iterations
        while len(latencies_ns) < MAX_ITERATIONS:
            results = engine.results()
            if stateful:
                arguments = engine.arguments(prepared)
            start = clock()
            invoke(arguments, results)
            elapsed = clock() - start
            if stateful:
                engine.keep_states(results)
            if warmups_left > 0:
                warmups_left -= 1
            else:
                latencies_ns.append(elapsed)
                spent_ns += elapsed
                if len(latencies_ns) >= iterations and spent_ns >= enough_ns:
                    break
            if not keep_going():
                break
    finally:
        if collecting:
            gc.enable()
    return [elapsed / 1e6 for elapsed in latencies_ns]


def summarize(latencies_ms: Sequence[float]) -> LatencySummary | None:
    """Mean, extremes and quantiles; ``None`` without any."""
    if not latencies_ms:
        return None
    ordered = sorted(latencies_ms)
    return LatencySummary(
        iterations=len(ordered),
        mean_ms=math.fsum(ordered) / len(ordered),
        min_ms=ordered[0],
        p50_ms=quantile(ordered, 0.50),
        p90_ms=quantile(ordered, 0.90),
        p99_ms=quantile(ordered, 0.99),
        max_ms=ordered[-1],
    )


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """The quantile of sorted values, linear between order statistics.

    With n values the quantile q lies at position q (n - 1), counted from 0: Hyndman and Fan's
    definition 7 (1996), which is NumPy's default.
    """
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
