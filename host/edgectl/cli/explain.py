"""``edgectl explain``."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgectl.cli.building import load_model
from edgectl.cli.console import Output
from edgectl.cli.options import output_options, source_options
from edgectl.errors import UnsupportedModelError
from edgectl.pipeline import SourceOptions
from edgectl_runner.contract import to_document

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["command"]


@click.command("explain")
@source_options
@click.option("--all", "everything", is_flag=True, help="Also the operations that go to TOSA.")
@click.option(
    "--emit-tosa",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the model as a serialized TOSA file (needs tosa-tools).",
)
@output_options
def command(
    *,
    output: Output,
    everything: bool,
    emit_tosa: Path | None,
    source: SourceOptions,
    trust_model: bool,
) -> None:
    """Show what becomes of every operation of MODEL, without compiling it."""
    from edgectl.lowering import explain, lower
    from edgectl.lowering.tosa_file import write_tosa

    model = load_model(output, source, trust_model=trust_model)
    with output.step("look at every operation"):
        coverage = explain(model)
    verdicts = coverage.operators
    counts = collections.Counter(str(v.where) for v in verdicts)

    def render(console: Console) -> None:
        from rich.table import Table

        table = Table("module", "operator", "where", "MACs", "why")
        for v in verdicts:
            if everything or str(v.where) in ("fallback", "refused"):
                macs = f"{v.macs:,}" if v.macs else ""
                table.add_row(v.module, v.operator, v.dialect or str(v.where), macs, v.reason)
        if table.row_count:
            console.print(table)
        console.print(", ".join(f"{n} {where}" for where, n in sorted(counts.items())))

    document = {
        "model": Path(model.name).name,
        "counts": dict(counts),
        "operators": [to_document(v) for v in verdicts],
    }
    output.result(document, render)
    if refused := coverage.refused():
        first = refused[0]
        raise UnsupportedModelError(
            f"{len(refused)} operations cannot be compiled; the first is {first.operator} in "
            f"module {first.module or '(the model itself)'}.",
            cause=first.reason,
            next_step="Replace it in the model by operations that are listed as TOSA.",
        )
    if emit_tosa is not None:
        with output.step(f"write {emit_tosa}"):
            write_tosa(lower(model, strict_tosa=True), emit_tosa)
