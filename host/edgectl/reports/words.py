"""How runs are named and figures spelled, the same in every kind of report."""

from __future__ import annotations

from edgectl.benchmarking import BenchmarkReport, Capacity, Run

__all__ = [
    "SCENARIO_NAMES",
    "bytes_text",
    "capacity_text",
    "metric_text",
    "provenance_rows",
    "run_name",
]

SCENARIO_NAMES = {
    "single_stream": "SingleStream",
    "multi_stream": "MultiStream",
    "offline": "Offline",
    "server": "Server",
}


def run_name(run: Run) -> str:
    """Scenario, threads, and what is not as usual."""
    text = f"{SCENARIO_NAMES[run.scenario]}, {run.threads} thread{'s' if run.threads > 1 else ''}"
    if run.batch > 1:
        text += f", batch {run.batch}"
    if run.target_qps is not None:
        text += f", {run.target_qps:.4g} queries/s"
    return text


def metric_text(run: Run) -> str:
    """The figure a scenario is judged by, or how many queries it lacks."""
    if run.metric.value is None:
        percentile = float(run.metric.name.split("th ")[0])
        needed = {q.percentile: q.needed_queries for q in run.quantiles}[percentile]
        return f"needs {needed} queries"
    return f"{run.metric.value:.2f} {run.metric.unit}"


def capacity_text(capacity: Capacity) -> str:
    """The highest rate that keeps the bound."""
    rate = capacity.queries_per_s
    said = f"{rate:.3g} queries/s" if rate is not None else "no rate that was tried"
    batch = f", batch {capacity.batch}" if capacity.batch > 1 else ""
    return (
        f"p99 within {capacity.bound_ms:g} ms: {said} ({capacity.threads} "
        f"thread{'s' if capacity.threads > 1 else ''}{batch})"
    )


def bytes_text(size: float | None) -> str:
    """In MB or kB, powers of ten."""
    if size is None:
        return "unknown"
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def provenance_rows(report: BenchmarkReport) -> list[tuple[str, str]]:
    """Everything that is known, as (what, value)."""
    made = report.provenance
    rows = [
        ("made", f"{report.created}, preset {report.preset}"),
        ("device", report.device + (" (virtual Pi: emulated)" if report.emulated else "")),
        ("board", made.board),
        ("core", f"{made.cpu_count} x {made.core or 'unknown'}"),
        ("memory", bytes_text(made.memory_total_bytes)),
        ("system", f"{made.os or 'unknown'}, kernel {made.kernel}, {made.libc or 'unknown libc'}"),
        ("governor", made.governor),
        ("throttling told by", made.throttle_source),
        ("edgectl", f"{made.edgectl_version}, runner {made.runner_version}"),
        ("IREE", made.iree_version),
        ("Python there", made.python),
        ("target", report.target),
        ("compiler flags", " ".join(made.compiler_flags)),
        ("tools", ", ".join(f"{name} {version}" for name, version in sorted(made.tools.items()))),
        ("bundle sha256", made.bundle_sha256),
        ("module sha256", made.module_sha256),
        ("source sha256", made.source_sha256),
        ("release", made.release),
        ("command", " ".join(made.command)),
    ]
    return [(name, value or "unknown") for name, value in rows]
