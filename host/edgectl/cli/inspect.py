"""``edgectl inspect``."""

from __future__ import annotations

from pathlib import Path

import click

from edgectl.bundle import read_bundle
from edgectl.cli.console import Output
from edgectl.cli.describe import bundle_document, print_bundle
from edgectl.cli.options import output_options

__all__ = ["command"]


@click.command("inspect")
@click.argument("bundle", type=click.Path(path_type=Path))
@output_options
def command(*, output: Output, bundle: Path) -> None:
    """Show what is in BUNDLE: sizes, inputs, outputs, target, tools, digests."""
    read = read_bundle(bundle)
    output.result({"bundle": bundle_document(read)}, lambda console: print_bundle(console, read))
