"""Options and tables of a run on a device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from edgectl.deployment import Timing

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl_runner.contract import RunReport

__all__ = ["cpus", "print_report", "timing_options"]


def timing_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How a run is timed; the command gets a `Timing` as ``timing``."""

    @click.option(
        "--iterations",
        type=click.IntRange(min=1),
        default=20,
        show_default=True,
        help="Timed calls, at least.",
    )
    @click.option(
        "--warmup",
        "warmup_iterations",
        type=click.IntRange(min=0),
        default=3,
        show_default=True,
        help="Calls before timing begins.",
    )
    @click.option(
        "--min-seconds",
        type=click.FloatRange(min=0),
        default=0.0,
        show_default=True,
        help="Go on timing for at least this long.",
    )
    @click.option(
        "--threads", type=click.IntRange(min=1), help="Worker threads (default: all cores)."
    )
    @click.option("--cpu-affinity", metavar="CPUS", help="Cores to run on, as 0,1 or 2-3.")
    @functools.wraps(function)
    def wrapped(
        iterations: int,
        warmup_iterations: int,
        min_seconds: float,
        threads: int | None,
        cpu_affinity: str | None,
        **values: Any,
    ) -> Any:
        timing = Timing(
            iterations=iterations,
            warmup_iterations=warmup_iterations,
            min_seconds=min_seconds,
            threads=threads,
            cpu_affinity=cpus(cpu_affinity) if cpu_affinity is not None else None,
        )
        return function(timing=timing, **values)

    return wrapped


def cpus(text: str) -> tuple[int, ...]:
    """Cores as a person lists them: 0,1 or 2-3."""
    cpus: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            cpus.extend(range(int(first), int(last or first) + 1))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a list of cores like 0,1 or 2-3", param_hint="--cpu-affinity"
        ) from None
    if not cpus:
        raise click.BadParameter(f"{text!r} names no core", param_hint="--cpu-affinity")
    return tuple(cpus)


def print_report(
    console: Console, report: RunReport, *, emulated: bool, reference: str = "eager PyTorch"
) -> None:
    """The comparison with ``reference`` first; a latency only when it holds."""
    from rich.table import Table

    table = Table(
        "output",
        "call",
        "max abs error",
        "relative",
        "cosine",
        "SQNR dB",
        "top-1",
        "",
        title=f"Compared with {reference}",
    )
    for c in report.comparisons:
        table.add_row(
            c.name,
            str(c.call),
            f"{c.max_absolute_error:.3g}",
            f"{c.max_relative_error:.2g}",
            _number(c.cosine, "{:.6f}"),
            "exact" if c.max_absolute_error == 0 else _number(c.sqnr_db, "{:.1f}"),
            _number(c.top1_agreement, "{:.0%}"),
            "ok" if c.passed else f"WRONG: {c.reason or ''}",
        )
    console.print(table)
    if report.latency is None:
        return
    latency = report.latency
    title = "Latency (emulated: latency is not a Pi's)" if emulated else "Latency"
    numbers = Table(
        "p50 ms", "p90 ms", "p99 ms", "mean ms", "min ms", "max ms", "runs", "threads", title=title
    )
    values = (latency.p50_ms, latency.p90_ms, latency.p99_ms, latency.mean_ms, latency.min_ms)
    numbers.add_row(
        *(f"{v:.2f}" for v in values),
        f"{latency.max_ms:.2f}",
        str(latency.iterations),
        str(report.threads),
    )
    console.print(numbers)
    temperature = report.after.temperature_celsius
    console.print(
        f"load {report.load_ms:.1f} ms, peak memory {report.peak_rss_bytes / 1e6:.1f} MB, "
        f"temperature {_number(temperature, '{:.1f} C')}, "
        f"throttling {_throttle(report.after.throttle_flags)}",
        highlight=False,
    )


def _number(value: float | None, form: str) -> str:
    return "unknown" if value is None else form.format(value)


def _throttle(flags: int | None) -> str:
    if flags is None:
        return "unknown"
    return "none" if flags == 0 else f"0x{flags:x}"
