"""Options of a benchmark."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from edgectl.cli.running import cpus

__all__ = ["bench_options"]

_PRESETS = ("rapid", "quick", "full")
_SCENARIOS = ("single_stream", "multi_stream", "offline", "server")


def bench_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How a model is benchmarked; the command gets `BenchOptions` as ``bench``."""

    @click.option(
        "--preset",
        type=click.Choice(_PRESETS),
        default="quick",
        show_default=True,
        help="rapid: 64 queries, 6 s; quick: 128, 10 s; full: 1024, 60 s, long cool-down.",
    )
    @click.option(
        "--scenario",
        "scenarios",
        multiple=True,
        type=click.Choice([*_SCENARIOS, "all"]),
        help="Repeatable [default: single_stream].",
    )
    @click.option("--threads", metavar="N[,N]", help="Worker threads, each in turn (default: all).")
    @click.option("--batch", metavar="N[,N]", default="1", help="Batches, each in turn.")
    @click.option("--cpu-affinity", metavar="CPUS", help="Cores to run on, as 0,1 or 2-3.")
    @click.option(
        "--spin-us", type=click.IntRange(min=0), help="How long an idle worker spins, in us."
    )
    @click.option(
        "--qps",
        "target_qps",
        type=click.FloatRange(min=0, min_open=True),
        help="Rate of the server scenario (default: half of what one stream reaches).",
    )
    @click.option(
        "--latency-bound",
        "latency_bound_ms",
        type=click.FloatRange(min=0, min_open=True),
        metavar="MS",
        help="Find the highest rate of server whose 99th percentile keeps this.",
    )
    @click.option("--seed", type=int, default=0, show_default=True, help="Of the arrivals.")
    @click.option("--queries", type=click.IntRange(min=1), help="Least queries of a run.")
    @click.option("--min-seconds", type=click.FloatRange(min=0), help="Least length of a run.")
    @click.option(
        "--max-seconds", type=click.FloatRange(min=0, min_open=True), help="Give a run up then."
    )
    @click.option(
        "--max-warmup",
        "max_warmup_seconds",
        type=click.FloatRange(min=0),
        default=30.0,
        show_default=True,
        help="Seconds in which the latency must have settled before timing.",
    )
    @click.option(
        "--cooldown", "cooldown_s", type=click.FloatRange(min=0), help="Pause before each run, s."
    )
    @functools.wraps(function)
    def wrapped(
        preset: str,
        scenarios: tuple[str, ...],
        threads: str | None,
        batch: str,
        cpu_affinity: str | None,
        spin_us: int | None,
        target_qps: float | None,
        latency_bound_ms: float | None,
        seed: int,
        queries: int | None,
        min_seconds: float | None,
        max_seconds: float | None,
        max_warmup_seconds: float,
        cooldown_s: float | None,
        **values: Any,
    ) -> Any:
        from edgectl.benchmarking import PRESETS, SCENARIOS, BenchOptions

        wanted = [s for s in SCENARIOS if s in scenarios or "all" in scenarios] or ["single_stream"]
        if target_qps is not None and latency_bound_ms is not None:
            raise click.UsageError("--qps and --latency-bound exclude one another")
        if latency_bound_ms is not None and "server" not in wanted:
            raise click.UsageError("--latency-bound needs --scenario server")
        options = BenchOptions(
            preset=PRESETS[preset],
            scenarios=tuple(wanted),
            threads=_numbers(threads, "--threads") if threads else (None,),
            batches=_numbers(batch, "--batch"),
            cpu_affinity=cpus(cpu_affinity) if cpu_affinity is not None else None,
            spin_us=spin_us,
            target_qps=target_qps,
            latency_bound_ms=latency_bound_ms,
            seed=seed,
            queries=queries,
            seconds=min_seconds,
            max_seconds=max_seconds,
            max_warmup_seconds=max_warmup_seconds,
            cooldown_s=cooldown_s,
        )
        return function(bench=options, **values)

    return wrapped


def _numbers(text: str, name: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = (0,)
    if min(numbers) < 1:
        raise click.BadParameter(f"{text!r} is not numbers from 1 up like 1,2,4", param_hint=name)
    return numbers
