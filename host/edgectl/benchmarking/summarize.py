"""From what the device reports of a run to the figures and the verdict on them."""

from __future__ import annotations

import numpy as np

from edgectl.benchmarking.presets import METRIC_PERCENTILE
from edgectl.benchmarking.records import Metric, Quantile, Run
from edgectl.benchmarking.statistics import early_stopping, min_queries, quantile_interval
from edgectl.benchmarking.validity import judge
from edgectl.errors import DeviceError
from edgectl_runner.contract import RunReport

__all__ = ["PERCENTILES", "quantiles_of", "summarize_run"]

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


def quantiles_of(latencies_ms: tuple[float, ...]) -> tuple[Quantile, ...]:
    """Each of `PERCENTILES`: linear between order statistics, with bounds at 0.99 confidence."""
    values = np.asarray(latencies_ms, dtype=np.float64)
    found = []
    for percentile in PERCENTILES:
        low, high = quantile_interval(latencies_ms, percentile)
        found.append(
            Quantile(
                percentile=percentile,
                value_ms=float(np.percentile(values, percentile)),
                low_ms=low,
                high_ms=high,
                early_stopping_ms=early_stopping(latencies_ms, percentile),
                needed_queries=min_queries(percentile),
            )
        )
    return tuple(found)


def summarize_run(
    report: RunReport, *, cpu_affinity: tuple[int, ...] | None, emulated: bool
) -> Run:
    """The figures of a run whose outputs were right."""
    load = report.load
    if load is None:
        raise DeviceError("The runner reported no load.", next_step="Deploy again.")
    plan, latencies = load.plan, report.latencies_ms
    values = np.asarray(latencies, dtype=np.float64)
    quantiles = quantiles_of(latencies)
    throughput = load.samples / load.duration_s
    invalid, notes = judge(load, report.before, report.after)
    if emulated:
        notes = ("emulated: no figure is a Pi's", *notes)
    errors = [c.max_relative_error for c in report.comparisons]
    return Run(
        scenario=plan.scenario,
        threads=report.threads,
        cpu_affinity=cpu_affinity,
        spin_us=plan.spin_us,
        batch=plan.batch,
        samples_per_query=plan.samples_per_query,
        target_qps=plan.target_qps,
        seed=plan.seed,
        queries=len(latencies),
        samples=load.samples,
        duration_s=load.duration_s,
        throughput=throughput,
        metric=_metric(report, quantiles, throughput),
        mean_ms=float(values.mean()),
        min_ms=float(values.min()),
        max_ms=float(values.max()),
        quantiles=quantiles,
        valid=not invalid,
        invalid=invalid,
        notes=notes,
        warmup_calls=len(load.warmup_ms),
        load_ms=report.load_ms,
        peak_rss_bytes=report.peak_rss_bytes,
        worst_relative_error=max(errors, default=None),
        latencies_ms=latencies,
        starts_ms=load.starts_ms,
        trace=load.trace,
        before=report.before,
        after=report.after,
    )


def _metric(report: RunReport, quantiles: tuple[Quantile, ...], throughput: float) -> Metric:
    plan = report.load.plan if report.load is not None else None
    if plan is None or plan.scenario == "offline":
        return Metric(name="samples a second", value=throughput, unit="samples/s")
    percentile = METRIC_PERCENTILE[plan.scenario]
    (found,) = (q for q in quantiles if q.percentile == percentile)
    name = f"{percentile:g}th percentile, early stopping"
    if plan.scenario == "server":
        name += f", at {plan.target_qps or 0:g} queries/s"
    return Metric(name=name, value=found.early_stopping_ms, unit="ms")
