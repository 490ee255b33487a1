"""``edgectl bench``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgectl.cli.building import hooks_of
from edgectl.cli.bundles import bundle_and_device
from edgectl.cli.console import Output
from edgectl.cli.measuring import bench_options
from edgectl.cli.options import build_options, device_option, output_options
from edgectl.errors import DeviceError
from edgectl.settings import load_settings
from edgectl_runner.contract import to_document

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl.benchmarking import BenchmarkReport, BenchOptions
    from edgectl.records import Bundle
    from edgectl.reports import LayerCost

__all__ = ["command"]


@click.command("bench")
@build_options
@device_option
@bench_options
@click.option(
    "--report",
    "report_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write a page (.html), Markdown (.md) or a table (.csv).",
)
@click.option(
    "--profile",
    "profile_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Layers for the report, from `edgectl profile --json`.",
)
@click.option("--require-valid", is_flag=True, help="Exit code 7 if any run is invalid.")
@output_options
def command(
    *,
    output: Output,
    device: str | None,
    accept_new_host_key: bool,
    ssh_timeout_s: float,
    bench: BenchOptions,
    report_file: Path | None,
    profile_file: Path | None,
    require_valid: bool,
    **options: Any,
) -> int:
    """Time MODEL on a device by the rules of MLPerf Inference.

    MODEL is a model file, a bundle (.edgectl), or a Python factory. Its outputs are compared with
    PyTorch before and after each timing: no figures for a wrong output. A run during which the
    board was throttled, hot, or busy with other work is marked invalid and says why.
    """
    from edgectl.benchmarking import benchmark, keep, open_session
    from edgectl.reports import check_form, layers_of_profile

    if report_file is not None:
        check_form(report_file)
    layers = layers_of_profile(profile_file) if profile_file is not None else ()
    settings = load_settings()
    with bundle_and_device(
        output,
        options,
        device=device,
        accept_new_host_key=accept_new_host_key,
        ssh_timeout_s=ssh_timeout_s,
    ) as (bundle, remote):
        session = open_session(remote, (bundle,), settings=settings, hooks=hooks_of(output))
        report = benchmark(session, bundle, bench, command=("edgectl", *sys.argv[1:]))
        keep(report, settings)
        if report_file is not None:
            _write(report, bundle, layers, report_file)
    output.result(to_document(report), lambda console: print_benchmark(console, report))
    bad = [run for run in report.runs if not run.valid]
    if require_valid and bad:
        # With --json the document already says why, and a second one may not follow.
        if output.as_json:
            return DeviceError.exit_code
        raise DeviceError(
            f"{len(bad)} of {len(report.runs)} runs are invalid: {bad[0].invalid[0]}.",
            next_step="Cool the board, stop what else runs on it, and run the command again.",
        )
    return 0


def _write(
    report: BenchmarkReport, bundle: Bundle, layers: tuple[LayerCost, ...], path: Path
) -> None:
    from edgectl.reports import ReportData, coverage_of, quantization_of, write_report

    data = ReportData(
        benchmark=report,
        layers=layers,
        quantization=quantization_of(bundle),
        coverage=coverage_of(bundle),
    )
    write_report(data, path)


def print_benchmark(console: Console, report: BenchmarkReport) -> None:
    """A row for each run; why a run is invalid below."""
    from rich.table import Column, Table

    from edgectl.reports.words import capacity_text, metric_text

    emulated = " (EMULATED: no figure is a Pi's)" if report.emulated else ""
    right = ("threads", "batch", "queries", "result", "p50 ms", "p90 ms", "p99 ms", "samples/s")
    table = Table(
        "scenario",
        *(Column(name, justify="right") for name in right),
        "",
        title=f"{report.model} ({report.precision}) on {report.device}{emulated}",
    )
    for run in report.runs:
        by_percentile = {q.percentile: q for q in run.quantiles}
        table.add_row(
            run.scenario,
            str(run.threads),
            str(run.batch),
            str(run.queries),
            metric_text(run),
            *(f"{by_percentile[p].value_ms:.2f}" for p in (50.0, 90.0, 99.0)),
            f"{run.throughput:.2f}",
            "ok" if run.valid else "INVALID",
        )
    console.print(table)
    for capacity in report.capacities:
        console.print(capacity_text(capacity), highlight=False)
    for number, run in enumerate(report.runs, 1):
        for reason in run.invalid:
            console.print(f"run {number} is invalid: {reason}", highlight=False)
    for note in sorted({note for run in report.runs for note in run.notes}):
        console.print(f"note: {note}", highlight=False)
