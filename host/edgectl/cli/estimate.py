"""``edgectl estimate``."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgectl.cli.building import hooks_of
from edgectl.cli.bundles import bundle_of
from edgectl.cli.console import Output
from edgectl.cli.options import build_options, output_options
from edgectl.errors import UsageError
from edgectl.settings import load_settings
from edgectl_runner.contract import to_document

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl.estimation import Calibration, Estimate, StaticCost
    from edgectl.records import Bundle

__all__ = ["command"]


@click.command("estimate")
@build_options
@click.option("--static", "static_only", is_flag=True, help="Only what needs no emulation.")
@click.option(
    "--calibrate",
    "profile",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Fit the model to what `edgectl profile --json` printed, and keep the fit.",
)
@click.option(
    "--top", type=click.IntRange(min=0), default=20, show_default=True, help="Layers (0: all)."
)
@output_options
def command(
    *, output: Output, static_only: bool, profile: Path | None, top: int, **options: Any
) -> None:
    """Model what MODEL costs on one core of a Pi, without any Pi. Never a measurement.

    MODEL is a model file, a bundle (.edgectl), or a Python factory. Instructions are counted
    exactly under emulation; cycles come from models of the pipeline, the caches and the memory.
    """
    from edgectl.estimation import (
        calibrate,
        check_profile,
        estimate_bundle,
        load_calibration,
        recalculated,
        save_calibration,
        static_cost,
    )

    if static_only and profile is not None:
        raise click.UsageError("--calibrate needs the emulation that --static leaves out")
    settings = load_settings()
    with tempfile.TemporaryDirectory(prefix="edgectl-") as folder:
        bundle = bundle_of(Path(folder), output, options)
        target = bundle.manifest.target
        if static_only:
            cost = static_cost(bundle)
            output.result(
                {"model": bundle.manifest.name, "target": target, "static": to_document(cost)},
                lambda console: _print_static(console, bundle, cost),
            )
            return
        document = _profile(profile) if profile is not None else None
        if document is not None:  # before anything slow
            check_profile(document, target, source=str(profile))
        kept = load_calibration(target, settings) if profile is None else None
        estimate = estimate_bundle(
            bundle,
            weights=kept.weights if kept is not None else None,
            calibrated=kept.source if kept is not None else None,
            settings=settings,
            hooks=hooks_of(output),
        )
        fitted: Calibration | None = None
        if profile is not None and document is not None:
            fitted = calibrate(estimate, document, source=str(profile))
            estimate = recalculated(estimate, fitted)
            output.say(f"kept for {target} in {save_calibration(fitted, settings)}")

    def render(console: Console) -> None:
        _print_static(console, bundle, estimate.static)
        _print_layers(console, estimate, top)
        if fitted is not None:
            console.print(
                f"calibrated with {fitted.layers} layers: mean error "
                f"{fitted.mean_error_before:.1%} before, {fitted.mean_error:.1%} after",
                highlight=False,
            )

    output.result(_document(bundle, estimate, fitted), render)


def _profile(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} is not JSON: {error}.",
            next_step="edgectl profile BUNDLE --device DEVICE --threads 1 --json > profile.json",
        ) from error
    return document


def _document(bundle: Bundle, estimate: Estimate, fitted: Calibration | None) -> dict[str, Any]:
    layers = [
        {
            **{
                key: value
                for key, value in to_document(layer.call).items()
                if key not in ("function", "nodes")
            },
            "instructions": layer.instructions,
            "pipeline_cycles": layer.pipeline_cycles,
            "cycles": layer.cycles,
            "share": layer.cycles / estimate.cycles,
            "dram_bytes": layer.dram_bytes,
        }
        for layer in estimate.layers
    ]
    document = {key: value for key, value in to_document(estimate).items() if key != "layers"}
    return {
        "model": bundle.manifest.name,
        "modelled": True,
        "threads": 1,
        **document,
        "layers": layers,
        "calibration": to_document(fitted) if fitted is not None else None,
    }


def _print_static(console: Console, bundle: Bundle, cost: StaticCost) -> None:
    from rich.table import Table

    table = Table(title=f"{bundle.manifest.name} for {bundle.manifest.target}", show_header=False)
    integer = f", {cost.integer_macs / cost.macs:.0%} integer" if cost.macs else ""
    table.add_row("multiply-accumulates", f"{cost.macs / 1e6:.1f} M{integer}")
    table.add_row("weights", f"{cost.constant_bytes / 1e6:.2f} MB")
    table.add_row("intermediate results", f"{cost.transient_bytes / 1e6:.2f} MB")
    table.add_row("inputs, outputs, states", f"{cost.boundary_bytes / 1e6:.2f} MB")
    table.add_row("memory with the runner", f"about {cost.needed_bytes / 1e6:.0f} MB")
    for fit in cost.fits:
        verdict = "fits" if fit.fits else "DOES NOT FIT"
        table.add_row(
            f"{fit.target}, {fit.memory_mb} MB", f"{verdict} ({fit.free_bytes / 1e6:.0f} MB free)"
        )
    console.print(table)


def _print_layers(console: Console, estimate: Estimate, top: int) -> None:
    from rich.table import Column, Table

    from edgectl_toolchains import load_target

    target = load_target(estimate.target)
    origin = f"calibrated with {estimate.calibrated}" if estimate.calibrated else "not calibrated"
    table = Table(
        Column("module", overflow="fold", min_width=24),
        "operator",
        "M MACs",
        "M instr.",
        "M cycles",
        "share",
        "DRAM kB",
        title=f"MODELLED, not measured: one {target.cpu} at {target.clock_mhz} MHz, {origin}",
    )
    for column in table.columns[2:]:
        column.justify = "right"
    ordered = sorted(estimate.layers, key=lambda layer: -layer.cycles)
    for layer in ordered[: top or None]:
        table.add_row(
            layer.call.module or layer.call.symbol,
            layer.call.operator.removeprefix("aten.").removesuffix(".default"),
            f"{layer.call.macs / 1e6:.2f}" if layer.call.macs else "",
            f"{layer.instructions / 1e6:.2f}",
            f"{layer.cycles / 1e6:.2f}",
            f"{layer.cycles / estimate.cycles:.1%}",
            f"{layer.dram_bytes / 1e3:.0f}",
        )
    rest = ordered[top:] if top else []
    if rest:
        table.add_row(
            f"{len(rest)} more (--top 0)",
            "",
            f"{sum(x.call.macs for x in rest) / 1e6:.2f}",
            f"{sum(x.instructions for x in rest) / 1e6:.2f}",
            f"{sum(x.cycles for x in rest) / 1e6:.2f}",
            f"{sum(x.cycles for x in rest) / estimate.cycles:.1%}",
            f"{sum(x.dram_bytes for x in rest) / 1e3:.0f}",
        )
    console.print(table)
    console.print(
        f"{_figure(estimate.instructions / 1e6)} M instructions (exact), "
        f"{_figure(estimate.pipeline_cycles / 1e6)} M cycles in the pipeline alone, "
        f"{_figure(estimate.cycles / 1e6)} M with caches and memory: "
        f"about {_figure(estimate.milliseconds)} ms on one core (a model, not a measurement)",
        highlight=False,
    )


def _figure(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}"
