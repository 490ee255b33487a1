"""``edgectl inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgectl.bundle import read_bundle
from edgectl.cli.accuracy import print_layers, print_quantization
from edgectl.cli.console import Output
from edgectl.cli.describe import bundle_document, print_bundle
from edgectl.cli.options import output_options
from edgectl.device_accuracy import quantization_report

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["command"]


@click.command("inspect")
@click.argument("bundle", type=click.Path(path_type=Path))
@output_options
def command(*, output: Output, bundle: Path) -> None:
    """Show what is in BUNDLE: sizes, inputs, outputs, target, tools, digests."""
    read = read_bundle(bundle)
    quantization = quantization_report(read)

    def render(console: Console) -> None:
        print_bundle(console, read)
        if quantization is not None:
            print_quantization(console, quantization)
            print_layers(console, quantization)

    output.result({"bundle": bundle_document(read), "quantization": quantization}, render)
