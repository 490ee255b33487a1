"""A benchmark as Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from edgectl.reports.data import ReportData
from edgectl.reports.words import capacity_text, metric_text, provenance_rows, run_name

__all__ = ["report_markdown"]

_MOST_LAYERS = 10


def report_markdown(data: ReportData) -> str:
    """Tables of the runs and the slowest layers; provenance folded away."""
    report = data.benchmark
    lines = [f"## {_plain(report.model)} ({report.precision}) on {_plain(report.device)}", ""]
    if report.emulated:
        lines += ["**Emulated: no figure is a Raspberry Pi's.**", ""]
    rows = []
    for run in report.runs:
        at = {q.percentile: f"{q.value_ms:.3f}" for q in run.quantiles}
        rows.append(
            [
                run_name(run),
                str(run.queries),
                metric_text(run),
                at[50.0],
                at[90.0],
                at[99.0],
                f"{run.throughput:.2f}",
                "yes" if run.valid else "**no**",
            ]
        )
    heads = ("run", "queries", "result", "p50 ms", "p90 ms", "p99 ms", "samples/s", "valid")
    lines += _table(heads, rows)
    lines += ["", *(f"- {capacity_text(c)}" for c in report.capacities)]
    reasons = [f"- {run_name(r)} is invalid: {why}" for r in report.runs for why in r.invalid]
    lines += ["", *reasons] if reasons else []
    if data.layers:
        slowest = sorted(data.layers, key=lambda layer: -layer.time_ms)[:_MOST_LAYERS]
        cells = [
            [f"`{c.name}`", c.operator, f"{c.time_ms:.3f}", f"{c.share:.1%}", f"{c.macs / 1e6:.2f}"]
            for c in slowest
        ]
        lines += ["", *_table(("layer", "operator", "ms", "share", "M MACs"), cells)]
    lines += ["", "<details><summary>Provenance</summary>", ""]
    lines += _table(("what", "value"), [list(row) for row in provenance_rows(report)])
    lines += ["", "</details>", ""]
    return "\n".join(lines)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(_plain(cell) for cell in row)} |" for row in rows]


def _plain(text: str) -> str:
    """One line, with nothing that ends a cell or begins a tag."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
