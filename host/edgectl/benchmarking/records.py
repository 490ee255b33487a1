"""What a benchmark gives: frozen, versioned, written as JSON and read again by `compare`.

Times are in milliseconds, durations in seconds, throughputs in samples a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgectl_runner.contract import SystemSample, TracePoint

__all__ = [
    "BENCHMARK_VERSION",
    "BenchmarkReport",
    "Capacity",
    "Metric",
    "Provenance",
    "Quantile",
    "Run",
    "Scenario",
]

BENCHMARK_VERSION = 1

Scenario = Literal["single_stream", "multi_stream", "offline", "server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """A quantile of the latency, its confidence interval, and MLPerf's early-stopping estimate.

    ``early_stopping_ms`` is ``None`` below ``needed_queries`` queries: too few to say anything
    about that tail. The bounds are ``None`` where the sample has no order statistic to serve.
    """

    percentile: float
    value_ms: float
    low_ms: float | None
    high_ms: float | None
    early_stopping_ms: float | None
    needed_queries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The one figure that a scenario is judged by; ``None`` when there are too few queries."""

    name: str
    value: float | None
    unit: Literal["ms", "samples/s", "queries/s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One scenario with one setting of threads, batch and rate.

    An invalid run keeps its figures, for whoever looks for the cause; ``invalid`` says why nobody
    should quote them. ``notes`` says what is not known.
    """

    scenario: Scenario
    threads: int
    cpu_affinity: tuple[int, ...] | None
    spin_us: int | None
    batch: int
    samples_per_query: int
    target_qps: float | None
    seed: int
    queries: int
    samples: int
    duration_s: float
    throughput: float
    metric: Metric
    mean_ms: float
    min_ms: float
    max_ms: float
    quantiles: tuple[Quantile, ...]
    valid: bool
    invalid: tuple[str, ...]
    notes: tuple[str, ...]
    warmup_calls: int
    load_ms: float
    peak_rss_bytes: int
    worst_relative_error: float | None
    latencies_ms: tuple[float, ...]
    starts_ms: tuple[float, ...]
    trace: tuple[TracePoint, ...]
    before: SystemSample
    after: SystemSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where, with what and of what: enough to make the figures again."""

    board: str | None
    core: str | None
    cpu_count: int
    memory_total_bytes: int | None
    os: str | None
    kernel: str
    libc: str | None
    governor: str | None
    throttle_source: str | None
    python: str | None
    runner_version: str
    edgectl_version: str
    iree_version: str
    bundle_sha256: str
    module_sha256: str
    release: str
    source_sha256: str | None
    compiler_flags: tuple[str, ...]
    tools: dict[str, str]
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The highest rate of the server scenario whose 99th percentile keeps ``bound_ms``.

    ``queries_per_s`` is ``None`` when no rate that was tried did.
    """

    threads: int
    batch: int
    bound_ms: float
    queries_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkReport:
    """All runs of one ``edgectl bench``; ``created`` is UTC in ISO 8601."""

    schema_version: int = BENCHMARK_VERSION
    kind: Literal["benchmark"] = "benchmark"
    model: str
    target: str
    precision: str
    device: str
    emulated: bool
    preset: str
    created: str
    runs: tuple[Run, ...]
    provenance: Provenance
    capacities: tuple[Capacity, ...] = ()
