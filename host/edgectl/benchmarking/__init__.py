"""Benchmarks that an engineer believes: right outputs first, then scenarios with known rules.

session = open_session(device, (bundle,))
report = benchmark(session, bundle, BenchOptions(preset=PRESETS["quick"]))
"""

from edgectl.benchmarking.bench import BenchOptions, benchmark
from edgectl.benchmarking.presets import PRESETS, SCENARIOS, Preset
from edgectl.benchmarking.records import BenchmarkReport, Metric, Provenance, Quantile, Run
from edgectl.benchmarking.session import Session, open_session

__all__ = [
    "PRESETS",
    "SCENARIOS",
    "BenchOptions",
    "BenchmarkReport",
    "Metric",
    "Preset",
    "Provenance",
    "Quantile",
    "Run",
    "Session",
    "benchmark",
    "open_session",
]
