"""Runs as a device would report them, made of known numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgectl.benchmarking import BenchmarkReport, Provenance, Run
from edgectl.benchmarking.summarize import summarize_run
from edgectl_runner.contract import (
    LoadPlan,
    LoadResult,
    OutputComparison,
    RunReport,
    SystemSample,
    TracePoint,
)

QUIET = SystemSample(
    temperature_celsius=48.0,
    cpu_frequency_mhz=(1800.0,) * 4,
    throttle_flags=0,
    governor="performance",
)


def latencies(count: int = 1024, *, mean_ms: float = 30.0, seed: int = 0) -> np.ndarray:
    """Skewed to the right, as latencies are."""
    return mean_ms * np.random.default_rng(seed).lognormal(0.0, 0.03, count)


def trace(seconds: float, **changes: object) -> tuple[TracePoint, ...]:
    """A board that warms up, with nothing else to do."""
    return tuple(
        TracePoint(
            time_s=float(t),
            **{
                "temperature_celsius": 48.0 + 14.0 * (1 - 0.5 ** (t / 10)),
                "cpu_frequency_mhz": (1800.0,) * 4,
                "throttle_flags": 0,
                "other_load": 0.02,
                **changes,
            },
        )
        for t in np.arange(-0.5, seconds, 0.5)
    )


def run_report(
    values: Sequence[float] | np.ndarray,
    *,
    plan: LoadPlan | None = None,
    points: tuple[TracePoint, ...] | None = None,
    before: SystemSample = QUIET,
    after: SystemSample = QUIET,
    threads: int = 4,
    stable: bool = True,
    complete: bool = True,
) -> RunReport:
    """What the runner would send for these latencies, one right after the other."""
    plan = plan or LoadPlan()
    ends = np.cumsum(values)
    seconds = float(ends[-1] / 1000)
    load = LoadResult(
        plan=plan,
        starts_ms=tuple(float(v) for v in ends - values),
        duration_s=seconds,
        samples=len(values) * plan.samples_per_query * plan.batch,
        warmup_ms=(40.0,) * 9,
        stable=stable,
        complete=complete,
        trace=trace(seconds) if points is None else points,
    )
    comparison = OutputComparison(
        name="output", call=0, max_absolute_error=1e-6, max_relative_error=2e-7, cosine=1.0,
        sqnr_db=130.0, top1_agreement=1.0, passed=True,
    )  # fmt: skip
    return RunReport(
        release="0123456789abcdef", comparisons=(comparison,), latency=None,
        latencies_ms=tuple(float(v) for v in values), outputs={}, outputs_file=None, load_ms=210.0,
        peak_rss_bytes=61_000_000, threads=threads, before=before, after=after, machine="aarch64",
        emulated=False, runner_version="0.1.0", load=load,
    )  # fmt: skip


PROVENANCE = Provenance(
    board="Raspberry Pi 4 Model B Rev 1.4", core="Cortex-A72", cpu_count=4,
    memory_total_bytes=4_000_000_000, os="Debian GNU/Linux 12 (bookworm)", kernel="6.6.31-v8",
    libc="glibc 2.36", governor="performance", throttle_source="vcgencmd", python="3.11",
    runner_version="0.1.0", edgectl_version="0.1.0", iree_version="3.13.0", bundle_sha256="ab" * 32,
    module_sha256="cd" * 32, release="0123456789abcdef", source_sha256="ef" * 32,
    compiler_flags=("--iree-opt-level=O3",), tools={"torch": "2.13.0"}, command=("edgectl", "bench"),
)  # fmt: skip


def benchmark_of(
    *runs: Run, created: str = "2026-12-01T10:00:00+00:00", emulated: bool = False
) -> BenchmarkReport:
    """A report of these runs."""
    return BenchmarkReport(
        model="mobilenet", target="rpi4", precision="fp32", device="pi@kitchen", emulated=emulated,
        preset="full", created=created, runs=runs, provenance=PROVENANCE,
    )  # fmt: skip


def run_of(
    values: Sequence[float] | np.ndarray, *, emulated: bool = False, **changes: object
) -> Run:
    """The figures and the verdict of these latencies."""
    return summarize_run(run_report(values, **changes), cpu_affinity=None, emulated=emulated)
