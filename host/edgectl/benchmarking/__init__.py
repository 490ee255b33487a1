"""Benchmarks that an engineer believes: right outputs first, then scenarios with known rules.

session = open_session(device, (bundle,))
report = benchmark(session, bundle, BenchOptions(preset=PRESETS["quick"]))
compare_bundles(session, old, new, CompareOptions(), names=("old", "new"))
"""

from edgectl.benchmarking.bench import BenchOptions, benchmark
from edgectl.benchmarking.comparison import (
    CompareOptions,
    ComparisonReport,
    ComparisonRow,
    compare_bundles,
    compare_reports,
    regression,
)
from edgectl.benchmarking.files import history_of, is_report, keep, read_report
from edgectl.benchmarking.presets import PRESETS, SCENARIOS, Preset
from edgectl.benchmarking.records import (
    BenchmarkReport,
    Capacity,
    Metric,
    Provenance,
    Quantile,
    Run,
)
from edgectl.benchmarking.session import Session, open_session

__all__ = [
    "PRESETS",
    "SCENARIOS",
    "BenchOptions",
    "BenchmarkReport",
    "Capacity",
    "CompareOptions",
    "ComparisonReport",
    "ComparisonRow",
    "Metric",
    "Preset",
    "Provenance",
    "Quantile",
    "Run",
    "Session",
    "benchmark",
    "compare_bundles",
    "compare_reports",
    "history_of",
    "is_report",
    "keep",
    "open_session",
    "read_report",
    "regression",
]
