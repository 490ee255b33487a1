"""``edgectl compile``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgectl.bundle import BUNDLE_SUFFIX
from edgectl.cli.building import build_from_options
from edgectl.cli.console import Output
from edgectl.cli.describe import bundle_document, print_bundle
from edgectl.cli.options import build_options, output_options

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["command"]


@click.command("compile")
@build_options
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Bundle to write (default: MODEL-TARGET.edgectl here).",
)
@output_options
def command(*, output: Output, path: Path | None, **options: Any) -> None:
    """Compile MODEL into a bundle, without any device.

    MODEL is a file, or a Python factory as package.module:function or file.py:function.
    """
    file = path or Path(
        f"{Path(options['source'].source.split(':')[0]).stem}-{options['target']}{BUNDLE_SUFFIX}"
    )
    bundle, compiled = build_from_options(file, output, **options)
    document = {"bundle": bundle_document(bundle), "cached": compiled.cached}

    def render(console: Console) -> None:
        print_bundle(console, bundle)

    output.result(document, render)
