"""Tables of what quantization did to a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_layers", "print_quantization"]

_WORST = 10
_MOST_ISLANDS = 12


def print_quantization(console: Console, document: Mapping[str, Any]) -> None:
    """How much is integer, what stayed float and why, and how close it is to fp32."""
    report = document["report"]
    share = report["integer_macs"] / report["macs"] if report["macs"] else 0.0
    found = report["against_float"]
    parts = [f"{document['name']}: {share:.1%} of the multiply-accumulates are integer"]
    if report["integer_macs"] and report.get("operations"):
        parts[0] += f", {report['integer_operations'] / report['operations']:.1%} of the operations"
    reference = report.get("reference", "fp32")
    parts += [f"{_db(found['mean_sqnr_db'])} {reference} on {_inputs(found['samples'])}"]
    for name, key in (("top-1", "top1_agreement_percent"), ("top-5", "top5_agreement_percent")):
        if found.get(key) is not None:
            parts.append(f"{name} agreement {found[key]:.1f} %")
    own = report.get("metric")
    if own is not None:
        parts.append(
            f"your metric {own['float_percent']:.2f} % -> {own['quantized_percent']:.2f} %"
        )
    console.print("; ".join(parts), highlight=False)
    _print_islands(console, report)
    for warning in report.get("warnings", []):
        console.print(f"warning: {warning}", highlight=False)


def _print_islands(console: Console, report: Mapping[str, Any]) -> None:
    """What stayed float, largest first; nothing where nothing was meant to become integer."""
    if not report["integer_macs"]:
        return
    chosen = {x["node"]: x["reason"] for x in report.get("layers", []) if x.get("reason")}
    islands = sorted(report.get("float_islands", []), key=lambda island: -island["macs"])
    for island in islands[:_MOST_ISLANDS]:
        place = island["module"] or island["node"]
        macs = f", {island['macs']:,} MACs" if island["macs"] else ""
        reason = chosen.get(island["node"]) or island["reason"]
        console.print(f"float: {place} ({island['operator']}{macs}): {reason}", highlight=False)
    if len(islands) > _MOST_ISLANDS:
        rest = len(islands) - _MOST_ISLANDS
        console.print(f"float: {rest} more in the JSON of edgectl inspect", highlight=False)


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
    # 200 dB is where the mean is capped: no difference at all.
    return "equal to" if value is None or value >= 200 else f"{value:.1f} dB against"


def _inputs(count: int) -> str:
    return "1 input" if count == 1 else f"{count} inputs"
