"""``edgectl report``: pages and tables of benchmarks that were made before."""

from __future__ import annotations

from pathlib import Path

import click

from edgectl.cli.console import Output
from edgectl.cli.options import output_options
from edgectl.errors import UsageError
from edgectl.settings import load_settings

__all__ = ["command"]

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group("report")
def command() -> None:
    """Make pages and tables of benchmarks that were made before."""


@command.command("render")
@click.argument("benchmark", type=_FILE)
@click.option(
    "-o", "--output", "target", type=_FILE, required=True, help="A name in .html, .md or .csv."
)
@click.option("--profile", type=_FILE, help="Layers, from `edgectl profile --json`.")
@click.option("--bundle", "bundle_file", type=_FILE, help="For its coverage and quantization.")
@click.option("--queries", "queries_file", type=_FILE, help="Also every query, as CSV.")
@output_options
def render(
    *,
    output: Output,
    benchmark: Path,
    target: Path,
    profile: Path | None,
    bundle_file: Path | None,
    queries_file: Path | None,
) -> None:
    """Write a report of BENCHMARK, a file that `edgectl bench --json` made."""
    from edgectl.benchmarking import read_report
    from edgectl.bundle import read_bundle
    from edgectl.reports import (
        ReportData,
        check_form,
        coverage_of,
        layers_of_profile,
        quantization_of,
        queries_csv,
        write_report,
        write_text,
    )

    check_form(target)
    report = read_report(benchmark)
    bundle = read_bundle(bundle_file) if bundle_file is not None else None
    if bundle is not None and bundle.digest != report.provenance.bundle_sha256:
        raise UsageError(
            f"{bundle_file} is not the bundle that {benchmark.name} was made with.",
            next_step=f"It was {report.provenance.bundle_sha256[:16]}; this is "
            f"{bundle.digest[:16]}.",
        )
    data = ReportData(
        benchmark=report,
        layers=layers_of_profile(profile) if profile is not None else (),
        quantization=quantization_of(bundle) if bundle is not None else None,
        coverage=coverage_of(bundle) if bundle is not None else None,
    )
    write_report(data, target)
    if queries_file is not None:
        write_text(queries_csv(report), queries_file)
    output.result({"report": str(target)}, lambda console: console.print(f"wrote {target}"))


@command.command("history")
@click.argument("model")
@click.option("-o", "--output", "target", type=_FILE, required=True, help="An .html file.")
@output_options
def history(*, output: Output, model: str, target: Path) -> None:
    """Plot the benchmarks of MODEL on this computer over time.

    MODEL is the name that `edgectl bench` shows. Every benchmark is kept as it is made.
    """
    from edgectl.benchmarking import history_of
    from edgectl.reports import history_page, write_text

    if target.suffix.lower() != ".html":
        raise UsageError(f"{target.name} is not an .html file.", next_step="-o history.html")
    settings = load_settings()
    reports = history_of(model, settings)
    if not reports:
        kept = sorted(path.name for path in (settings.state_dir / "benchmarks").glob("*"))
        raise UsageError(
            f"No benchmark of {model!r} is kept here.",
            cause=f"There are: {', '.join(kept)}." if kept else "None was made yet.",
            next_step="edgectl bench MODEL --device NAME",
        )
    write_text(history_page(model, reports), target)
    document = {"report": str(target), "benchmarks": len(reports)}
    output.result(
        document, lambda console: console.print(f"wrote {target} ({len(reports)} benchmarks)")
    )
