"""``edgectl compare``."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgectl.cli.building import hooks_of
from edgectl.cli.bundles import bundle_of
from edgectl.cli.connecting import connected, target_of
from edgectl.cli.console import Output
from edgectl.cli.options import build_options, device_option, output_options
from edgectl.cli.running import cpus
from edgectl.errors import DeviceError, EdgectlError, UsageError
from edgectl.settings import load_settings
from edgectl_runner.contract import to_document

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl.benchmarking import ComparisonReport
    from edgectl.records import Bundle

__all__ = ["command"]


@click.command(
    "build", add_help_option=False, context_settings={"help_option_names": []}, hidden=True
)
@build_options
def _build(**options: Any) -> dict[str, Any]:
    return options


def _percent(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    del ctx, param
    if value is None:
        return None
    try:
        share = float(value.removesuffix("%").strip()) / 100.0
    except ValueError:
        share = -1.0
    if not 0 <= share < 10:
        raise click.BadParameter(f"{value!r} is no share in percent, as 3 or 3%")
    return share


@click.command("compare")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@device_option
@click.option("--build", default="", metavar="OPTIONS", help="Options of `compile`, for both.")
@click.option("--build-a", default="", metavar="OPTIONS", help="The same for A alone.")
@click.option("--build-b", default="", metavar="OPTIONS", help='For B alone, as "--quantize fp16".')
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Runs of each; with 16, one spoilt round cannot hide a difference.",
)
@click.option(
    "--queries", type=click.IntRange(min=1), default=16, show_default=True, help="In each round."
)
@click.option(
    "--min-seconds", type=click.FloatRange(min=0), default=1.0, show_default=True, help="The same."
)
@click.option(
    "--max-warmup",
    "max_warmup_seconds",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds in which the latency must have settled before each round.",
)
@click.option("--threads", type=click.IntRange(min=1), help="Worker threads (default: all cores).")
@click.option("--cpu-affinity", metavar="CPUS", help="Cores to run on, as 0,1 or 2-3.")
@click.option(
    "--percentile",
    type=click.FloatRange(0, 100, min_open=True, max_open=True),
    default=50.0,
    show_default=True,
    help="Of the latency, that is compared.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 1, max_open=True),
    default=0.99,
    show_default=True,
    help="Of the interval.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the order of the runs.")
@click.option(
    "--max-regression",
    metavar="PERCENT",
    callback=_percent,
    help="Exit code 9 if B is slower by more than this, the whole interval counted.",
)
@click.option("--require-valid", is_flag=True, help="Exit code 7 if a run is invalid.")
@output_options
def command(
    *,
    output: Output,
    a: str,
    b: str,
    max_regression: float | None,
    require_valid: bool,
    **options: Any,
) -> int:
    """Tell whether B is slower or quicker than A, and how sure that is.

    A and B are models, bundles (.edgectl), or two files that `edgectl bench --json` wrote. Models
    and bundles run in turn on one device, so that heat and clock strike both alike; the outputs
    of each are compared with PyTorch first.

    \b
      edgectl compare old.edgectl new.edgectl --device kitchen --max-regression 3%
      edgectl compare model.pt2 model.pt2 --build-b "--quantize fp16"
      edgectl compare monday.json friday.json
    """
    from edgectl.benchmarking import is_report, regression

    if is_report(a) != is_report(b):
        raise UsageError(
            "One of the two is a finished benchmark and the other is to be run.",
            next_step="Give two models or bundles, or two files of edgectl bench --json.",
        )
    report = _of_files(a, b, options) if is_report(a) else _on_device(a, b, output, options)
    error: EdgectlError | None = None
    if max_regression is not None:
        error = regression(report, max_regression=max_regression)
    bad = [row for row in report.rows if not row.valid]
    if require_valid and bad:
        error = DeviceError(
            f"The comparison is invalid: {bad[0].invalid[0]}.",
            next_step="Cool the board, stop what else runs on it, and run the command again.",
        )
    document = {**to_document(report), "error": error.message if error else None}
    output.result(document, lambda console: _print(console, report))
    if error is not None and not output.as_json:
        raise error
    # With --json the document already says it, and a second one may not follow.
    return 0 if error is None else error.exit_code


def _of_files(a: str, b: str, options: dict[str, Any]) -> ComparisonReport:
    from edgectl.benchmarking import compare_reports, read_report

    return compare_reports(
        read_report(Path(a)),
        read_report(Path(b)),
        names=_names(a, b),
        percentile=options["percentile"],
        confidence=options["confidence"],
        seed=options["seed"],
    )


def _on_device(a: str, b: str, output: Output, options: dict[str, Any]) -> ComparisonReport:
    from edgectl.benchmarking import CompareOptions, compare_bundles, open_session
    from edgectl.benchmarking.comparison import check_rounds

    affinity = options["cpu_affinity"]
    wanted = CompareOptions(
        rounds=options["rounds"],
        queries=options["queries"],
        seconds=options["min_seconds"],
        max_warmup_seconds=options["max_warmup_seconds"],
        threads=options["threads"],
        cpu_affinity=cpus(affinity) if affinity is not None else None,
        percentile=options["percentile"],
        confidence=options["confidence"],
        seed=options["seed"],
    )
    check_rounds(wanted)
    builds = [
        _options_of(model, f"{options['build']} {options[key]}", options["device"])
        for model, key in ((a, "build_a"), (b, "build_b"))
    ]
    settings = load_settings()
    with (
        tempfile.TemporaryDirectory(prefix="edgectl-") as folder,
        connected(
            options["device"],
            output,
            accept_new_host_key=options["accept_new_host_key"],
            ssh_timeout_s=options["ssh_timeout_s"],
            target=builds[0]["target"],
        ) as remote,
    ):
        bundles = [
            _bundle(Path(folder) / side, output, o) for side, o in zip("ab", builds, strict=True)
        ]
        session = open_session(
            remote, (bundles[0], bundles[1]), settings=settings, hooks=hooks_of(output)
        )
        return compare_bundles(session, bundles[0], bundles[1], wanted, names=_names(a, b))


def _options_of(model: str, text: str, device: str | None) -> dict[str, Any]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--build") from error
    options: dict[str, Any] = _build.main(
        args=[*words, "--", model], prog_name="--build", standalone_mode=False
    )
    options["target"] = target_of(options["target"], device)
    return options


def _bundle(folder: Path, output: Output, options: dict[str, Any]) -> Bundle:
    folder.mkdir()
    return bundle_of(folder, output, options)


def _names(a: str, b: str) -> tuple[str, str]:
    first, second = Path(a).name, Path(b).name
    return (first, second) if first != second else (f"{first} (A)", f"{second} (B)")


def _print(console: Console, report: ComparisonReport) -> None:
    from rich.table import Column, Table

    emulated = " (EMULATED: no figure is a Pi's)" if report.emulated else ""
    right = ("A ms", "B ms", "B/A", f"{report.confidence:.0%} interval")
    table = Table(
        "setting",
        *(Column(name, justify="right", no_wrap=True) for name in right),
        "B is",
        title=f"A = {report.a.name}, B = {report.b.name}, p{report.percentile:g}{emulated}",
    )
    for row in report.rows:
        table.add_row(
            row.setting,
            f"{row.a_ms:.3f}",
            f"{row.b_ms:.3f}",
            f"{row.ratio:.4f}",
            f"{row.low - 1:+.2%} to {row.high - 1:+.2%}",
            row.verdict if row.valid else f"{row.verdict} (INVALID)",
        )
    console.print(table)
    for row in report.rows:
        for reason in row.invalid:
            console.print(f"{row.setting} is invalid: {reason}", highlight=False)
    for note in report.notes:
        console.print(f"note: {note}", highlight=False)
