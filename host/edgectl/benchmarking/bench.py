"""Runs the scenarios of a benchmark on one device, one after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from edgectl.benchmarking.capacity import highest_rate
from edgectl.benchmarking.presets import METRIC_PERCENTILE, PRESETS, SAMPLES_PER_QUERY, Preset
from edgectl.benchmarking.provenance import provenance_of
from edgectl.benchmarking.records import BenchmarkReport, Capacity, Provenance, Run, Scenario
from edgectl.benchmarking.session import Session
from edgectl.benchmarking.statistics import min_queries
from edgectl.benchmarking.summarize import summarize_run
from edgectl.errors import EdgectlError
from edgectl.records import Bundle
from edgectl_runner.contract import LoadPlan

__all__ = ["BenchOptions", "Setting", "benchmark", "load_plan", "settings_of"]

LIGHT_LOAD = 0.5
"""Share of the rate of a single stream at which ``server`` runs when no rate is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One run to make."""

    scenario: Scenario
    threads: int | None
    batch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What to run, and for how long; ``None`` takes the preset's.

    ``threads``: ``None`` in it is every processor of the device. ``target_qps``: rate of
    ``server``; ``None`` is half the rate that a single stream reached, or, with a
    ``latency_bound_ms``, the highest at which the 99th percentile keeps it.
    """

    preset: Preset = PRESETS["quick"]
    scenarios: tuple[Scenario, ...] = ("single_stream",)
    threads: tuple[int | None, ...] = (None,)
    batches: tuple[int, ...] = (1,)
    cpu_affinity: tuple[int, ...] | None = None
    spin_us: int | None = None
    target_qps: float | None = None
    latency_bound_ms: float | None = None
    seed: int = 0
    queries: int | None = None
    seconds: float | None = None
    max_seconds: float | None = None
    max_warmup_seconds: float = 30.0
    cooldown_s: float | None = None


def settings_of(options: BenchOptions) -> tuple[Setting, ...]:
    """Every combination, scenario by scenario."""
    return tuple(
        Setting(scenario=scenario, threads=threads, batch=batch)
        for scenario in options.scenarios
        for threads in options.threads
        for batch in options.batches
    )


def load_plan(
    options: BenchOptions, setting: Setting, *, target_qps: float | None = None
) -> LoadPlan:
    """What the device is asked to do for one setting."""
    preset, scenario = options.preset, setting.scenario
    least = options.queries if options.queries is not None else preset.minimum(scenario)
    if scenario == "offline":
        least = math.ceil(least / setting.batch)
    if scenario == "server" and options.latency_bound_ms is not None:
        least = max(least, min_queries(METRIC_PERCENTILE[scenario]))  # fewer back no p99
    seconds = preset.seconds if options.seconds is None else options.seconds
    limit = preset.max_seconds if options.max_seconds is None else options.max_seconds
    return LoadPlan(
        scenario=scenario,
        min_queries=least,
        min_seconds=seconds,
        max_seconds=max(limit, seconds),
        max_warmup_seconds=options.max_warmup_seconds,
        samples_per_query=SAMPLES_PER_QUERY if scenario == "multi_stream" else 1,
        target_qps=target_qps if scenario == "server" else None,
        seed=options.seed,
        batch=setting.batch,
        spin_us=options.spin_us,
    )


def benchmark(
    session: Session,
    bundle: Bundle,
    options: BenchOptions,
    *,
    command: Sequence[str] = (),
    sleep: Callable[[float], None] = time.sleep,
) -> BenchmarkReport:
    """Installs the bundle and makes every run.

    Raises:
        OutputMismatchError: the outputs of a run were wrong; there are no figures then.
        DeviceError: a run failed.
    """
    release = session.install(bundle)
    runs: list[Run] = []
    capacities: list[Capacity] = []
    provenance: list[Provenance] = []

    def make(setting: Setting, rate: float | None) -> Run:
        _cool_down(session, options, sleep)
        with session.hooks.step(_title(setting, rate)):
            report = session.run(
                release,
                load_plan(options, setting, target_qps=rate),
                threads=setting.threads,
                cpu_affinity=options.cpu_affinity,
            )
        if not provenance:
            provenance.append(provenance_of(session, bundle, report, command=command))
        run = summarize_run(report, cpu_affinity=options.cpu_affinity, emulated=session.emulated)
        runs.append(run)
        return run

    for setting in settings_of(options):
        rate = options.target_qps
        if setting.scenario == "server" and rate is None:
            most = _most_rate(session, release, options, setting, runs)
            if options.latency_bound_ms is not None:
                capacities.append(_capacity(make, setting, most, options.latency_bound_ms))
                continue
            rate = LIGHT_LOAD * most
        make(setting, rate)
    if not provenance:
        raise EdgectlError("A benchmark without any run was asked for.")
    manifest = bundle.manifest
    return BenchmarkReport(
        model=manifest.name,
        target=manifest.target,
        precision=manifest.precision,
        device=session.device.label,
        emulated=session.emulated,
        preset=options.preset.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        runs=tuple(runs),
        provenance=provenance[0],
        capacities=tuple(capacities),
    )


def _cool_down(session: Session, options: BenchOptions, sleep: Callable[[float], None]) -> None:
    seconds = options.preset.cooldown_s if options.cooldown_s is None else options.cooldown_s
    # A virtual Pi does not heat up; who asks for the pause by name gets it there too.
    if seconds > 0 and (not session.emulated or options.cooldown_s is not None):
        with session.hooks.step(f"let the board cool down for {seconds:g} s"):
            sleep(seconds)


def _capacity(
    make: Callable[[Setting, float | None], Run], setting: Setting, most: float, bound_ms: float
) -> Capacity:
    threads = 0

    def holds(rate: float) -> bool:
        nonlocal threads
        run = make(setting, rate)
        threads = run.threads
        return run.metric.value is not None and run.metric.value <= bound_ms

    rate = highest_rate(holds, most)
    return Capacity(threads=threads, batch=setting.batch, bound_ms=bound_ms, queries_per_s=rate)


def _most_rate(
    session: Session, release: str, options: BenchOptions, setting: Setting, runs: Sequence[Run]
) -> float:
    """What a single stream of the same threads and batch reaches, in queries a second."""
    for run in runs:
        same = run.batch == setting.batch and setting.threads in (None, run.threads)
        if run.scenario == "single_stream" and same:
            return run.queries / run.duration_s
    probe = LoadPlan(
        min_queries=5,
        batch=setting.batch,
        spin_us=options.spin_us,
        max_warmup_seconds=options.max_warmup_seconds,
    )
    with session.hooks.step("find the rate of a single stream"):
        report = session.run(
            release, probe, threads=setting.threads, cpu_affinity=options.cpu_affinity
        )
    return 1000.0 * len(report.latencies_ms) / sum(report.latencies_ms)


def _title(setting: Setting, rate: float | None) -> str:
    text = f"{setting.scenario.replace('_', ' ')}, {setting.threads or 'all'} threads"
    if setting.batch > 1:
        text += f", batch {setting.batch}"
    if setting.scenario == "server" and rate is not None:
        text += f", {rate:.3g} queries/s"
    return text
