"""``edgectl targets``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from edgectl.cli.console import Output
from edgectl.cli.options import output_options
from edgectl_toolchains import load_target, target_names

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["command"]


@click.command("targets")
@output_options
def command(*, output: Output) -> None:
    """List the boards that models can be compiled for."""
    targets = [load_target(name) for name in target_names()]

    def render(console: Console) -> None:
        from rich.table import Table

        table = Table("target", "board", "core", "features")
        for target in targets:
            features = " ".join(f[1:] for f in target.cpu_features if f.startswith("+"))
            table.add_row(target.name, target.title, target.cpu, features)
        console.print(table)

    output.result({"targets": [dataclasses.asdict(t) for t in targets]}, render)
