"""Tables of what quantization did to a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_layers", "print_quantization"]

_WORST = 10


def print_quantization(console: Console, document: Mapping[str, Any]) -> None:
    """How much is integer, what stayed float and why, and how close it is to fp32."""
    report = document["report"]
    share = report["integer_macs"] / report["macs"] if report["macs"] else 0.0
    found = report["against_float"]
    parts = [f"{document['name']}: {share:.1%} of the multiply-accumulates are integer"]
    parts += [f"{_db(found['mean_sqnr_db'])} against fp32 on {found['samples']} inputs"]
    for name, key in (("top-1", "top1_agreement_percent"), ("top-5", "top5_agreement_percent")):
        if found.get(key) is not None:
            parts.append(f"{name} agreement {found[key]:.1f} %")
    console.print("; ".join(parts), highlight=False)
    for layer in report.get("layers", []):
        if not layer["integer"]:
            place = layer["module"] or layer["node"]
            reason = layer.get("reason") or "no integer form of it here"
            console.print(f"float: {place} ({layer['operator']}): {reason}", highlight=False)
    for warning in report.get("warnings", []):
        console.print(f"warning: {warning}", highlight=False)


def print_layers(console: Console, document: Mapping[str, Any]) -> None:
    """The layers that lose most, worst first; all of them are in the JSON."""
    from rich.table import Table

    layers = [x for x in document["report"].get("layers", []) if x.get("sqnr_db") is not None]
    if not layers:
        return
    layers.sort(key=lambda layer: layer["sqnr_db"])
    title = f"Quantized layers against fp32 (the {min(_WORST, len(layers))} worst)"
    table = Table("module", "operator", "MACs", "SQNR dB", "cosine", "max error", title=title)
    for layer in layers[:_WORST]:
        table.add_row(
            layer["module"],
            layer["operator"],
            f"{layer['macs']:,}" if layer["macs"] else "",
            f"{layer['sqnr_db']:.1f}",
            f"{layer['cosine']:.5f}",
            f"{layer['max_error']:.3g}",
        )
    console.print(table)


def _db(value: float | None) -> str:
    return "equal to" if value is None else f"{value:.1f} dB"
