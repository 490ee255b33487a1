"""A benchmark as CSV: one row for each run, or one for each query."""

from __future__ import annotations

import csv
import io

from edgectl.benchmarking import BenchmarkReport

__all__ = ["queries_csv", "runs_csv"]


def runs_csv(report: BenchmarkReport) -> str:
    """Scenario, setting, figures and verdict of each run."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    percentiles = [q.percentile for q in report.runs[0].quantiles]
    writer.writerow(
        ["model", "precision", "target", "device", "emulated", "created", "scenario", "threads"]
        + ["batch", "target_qps", "queries", "samples", "duration_s", "samples_per_s", "metric"]
        + ["metric_value", "metric_unit", "mean_ms", "min_ms", "max_ms"]
        + [f"p{p:g}_ms" for p in percentiles]
        + ["valid", "invalid"]
    )
    for run in report.runs:
        writer.writerow(
            [report.model, report.precision, report.target, report.device]
            + [str(report.emulated).lower(), report.created, run.scenario, run.threads, run.batch]
            + [run.target_qps or "", run.queries, run.samples, run.duration_s, run.throughput]
            + [run.metric.name, "" if run.metric.value is None else run.metric.value]
            + [run.metric.unit, run.mean_ms, run.min_ms, run.max_ms]
            + [q.value_ms for q in run.quantiles]
            + [str(run.valid).lower(), "; ".join(run.invalid)]
        )
    return out.getvalue()


def queries_csv(report: BenchmarkReport) -> str:
    """Number of the run, time of issue and latency of each query."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run", "scenario", "threads", "start_ms", "latency_ms"])
    for number, run in enumerate(report.runs, 1):
        for start, latency in zip(run.starts_ms, run.latencies_ms, strict=True):
            writer.writerow([number, run.scenario, run.threads, start, latency])
    return out.getvalue()
