"""The four scenarios of MLPerf Inference, with the load made on the device itself.

single_stream  the next query when the one before is done; one call each
multi_stream   the same, with several calls each
offline        calls one after the other; what counts is their number a second
server         queries arrive at random (Poisson); each waits for those before it, and its latency
               counts from its arrival

Rules: mlcommons/inference_policies, inference_rules.adoc. Only the calls lie between two readings
of the clock, as in `measurement`.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edgectl_runner.contract import LoadPlan
from edgectl_runner.engine import Engine, PreparedCall
from edgectl_runner.failures import USAGE, RunnerError

__all__ = ["Timed", "arrivals_ns", "check_plan", "run_scenario", "settled", "warm_up"]

WINDOW = 3
TOLERANCE = 0.10
_SPIN_NS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Latency and time of issue of each query, in ms; ``complete`` if both minima were reached."""

    latencies_ms: tuple[float, ...]
    starts_ms: tuple[float, ...]
    duration_s: float
    samples: int
    complete: bool


def check_plan(plan: LoadPlan) -> None:
    """Refuses numbers that make no sense.

    Raises:
        RunnerError: exit code 2.
    """
    wrong = None
    if min(plan.min_queries, plan.samples_per_query, plan.batch) < 1:
        wrong = "queries, samples of a query and batch are at least 1"
    elif plan.scenario == "server" and not (plan.target_qps and plan.target_qps > 0):
        wrong = "the server scenario needs a rate of queries above 0"
    elif plan.min_seconds < 0 or plan.max_seconds <= 0 or plan.trace_interval_s < 0.05:
        wrong = "times are positive, and the board is looked at 20 times a second at most"
    elif plan.spin_us is not None and plan.spin_us < 0:
        wrong = "workers cannot spin for less than no time"
    if wrong is not None:
        raise RunnerError(f"the load cannot be made: {wrong}", code=USAGE)


def settled(latencies: deque[float]) -> bool:
    """Whether the medians of the last three windows lie within 10 % of one another.

    The windows are perf_analyzer's rule for a stable measurement, on latency alone.
    """
    if len(latencies) < 3 * WINDOW:
        return False
    recent = list(latencies)[-3 * WINDOW :]
    medians = [statistics.median(recent[i : i + WINDOW]) for i in range(0, 3 * WINDOW, WINDOW)]
    return max(medians) <= min(medians) * (1 + TOLERANCE)


def warm_up(
    engine: Engine,
    prepared: PreparedCall,
    plan: LoadPlan,
    *,
    keep_going: Callable[[], bool] = lambda: True,
) -> tuple[tuple[float, ...], bool]:
    """Calls until the latency has settled, and whether it did; latencies in ms."""
    call = _caller(engine, prepared)
    latencies: deque[float] = deque()
    begin = time.perf_counter()
    while not settled(latencies):
        late = time.perf_counter() - begin > plan.max_warmup_seconds
        if late or not keep_going():
            return tuple(latencies), False
        start = time.perf_counter_ns()
        call()
        latencies.append((time.perf_counter_ns() - start) / 1e6)
    return tuple(latencies), True


def arrivals_ns(target_qps: float, seed: int) -> Iterator[int]:
    """Times of a Poisson process: gaps drawn from an exponential distribution, summed up."""
    source = random.Random(seed)  # noqa: S311 - a reproducible schedule, not a secret
    now = 0.0
    while True:
        now += source.expovariate(target_qps)
        yield int(now * 1e9)


def run_scenario(
    engine: Engine,
    prepared: PreparedCall,
    plan: LoadPlan,
    *,
    keep_going: Callable[[], bool] = lambda: True,
) -> Timed:
    """Makes the load and times it; states run on from call to call."""
    call = _caller(engine, prepared)
    schedule = arrivals_ns(plan.target_qps or 1.0, plan.seed) if plan.scenario == "server" else None
    calls = plan.samples_per_query if plan.scenario == "multi_stream" else 1
    clock = time.perf_counter_ns
    min_ns, max_ns = int(plan.min_seconds * 1e9), int(plan.max_seconds * 1e9)
    starts: list[int] = []
    ends: list[int] = []
    collecting = gc.isenabled()
    gc.disable()  # a collection between the clock readings would be counted as the model's
    try:
        begin = clock()
        while True:
            if schedule is None:
                start = clock()
            else:
                start = begin + next(schedule)
                _wait_until(start)
            for _ in range(calls):
                call()
            end = clock()
            starts.append(start)
            ends.append(end)
            complete = len(starts) >= plan.min_queries and end - begin >= min_ns
            if complete or end - begin >= max_ns or not keep_going():
                break
    finally:
        if collecting:
            gc.enable()
    return Timed(
        latencies_ms=tuple((b - a) / 1e6 for a, b in zip(starts, ends, strict=True)),
        starts_ms=tuple((a - begin) / 1e6 for a in starts),
        duration_s=(ends[-1] - begin) / 1e9,
        samples=len(starts) * calls * plan.batch,
        complete=complete,
    )


def _caller(engine: Engine, prepared: PreparedCall) -> Callable[[], None]:
    """One call of the model. Its argument list is made once, unless states change it."""
    invoke, results = engine.invoke, engine.results
    if engine.entry.states:

        def stateful() -> None:
            values = results()
            invoke(engine.arguments(prepared), values)
            engine.keep_states(values)

        return stateful
    arguments = engine.arguments(prepared)
    return lambda: invoke(arguments, results())


def _wait_until(moment_ns: int) -> None:
    """Sleeps, then spins the last millisecond: a sleep alone wakes up late."""
    while (left := moment_ns - time.perf_counter_ns()) > 0:
        if left > _SPIN_NS:
            time.sleep((left - _SPIN_NS) / 1e9)
