"""One self-contained HTML page: styles, script and charts inside, nothing fetched.

The charts are SVG made here, so the page says the same without its script; that only searches
and sorts the table of layers and switches between light and dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import pairwise
from typing import Any

from edgectl.benchmarking import BenchmarkReport, Run
from edgectl.reports.charts import Panel, histogram, history_chart, layer_bars, time_panels
from edgectl.reports.data import CoverageSummary, ReportData
from edgectl.reports.layers import LayerCost
from edgectl.reports.words import bytes_text, capacity_text, metric_text, provenance_rows, run_name

__all__ = ["history_page", "report_page"]

_MOST_BARS = 20
# Only what is inside the page may run or show; a report from elsewhere cannot phone home.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def report_page(data: ReportData) -> str:
    """The whole page of one benchmark."""
    report = data.benchmark
    body = [_head(report), _notices(report), _tiles(report), _runs_table(report)]
    for number, run in enumerate(report.runs, 1):
        body.append(_run_section(number, run))
    if data.layers:
        body.append(_layers(data.layers))
    body.append(_accuracy(report, data.quantization))
    if data.coverage is not None:
        body.append(_coverage(data.coverage))
    body.append(_section("Provenance", _facts(provenance_rows(report))))
    return _page(f"{report.model} on {report.device}", body)


def history_page(model: str, reports: Sequence[BenchmarkReport]) -> str:
    """Runs of one model over time, a chart for each setting."""
    body = [_title(model, f"{len(reports)} benchmarks")]
    series: dict[str, list[tuple[BenchmarkReport, Run]]] = {}
    for report in reports:
        where = " (emulated)" if report.emulated else ""
        for run in report.runs:
            name = f"{run_name(run)}, {report.precision}, {report.device.split(':')[0]}{where}"
            series.setdefault(name, []).append((report, run))
    for name, runs in series.items():
        points, rows = [], []
        for report, run in runs:
            median = run.quantiles[0]
            points.append(
                (report.created, median.value_ms, median.low_ms, median.high_ms, run.valid)
            )
            rows.append(
                [
                    report.created,
                    report.provenance.release[:12],
                    *(_ms(q.value_ms) for q in run.quantiles if q.percentile in (50, 90, 99)),
                    _verdict(run),
                ]
            )
        heads = ["made", "release", "p50 ms", "p90 ms", "p99 ms", ""]
        body.append(
            _section(
                name,
                f'<div class="card">{history_chart(points)}</div>'
                "<p class=sub>Median with its 99 % interval; hollow points are invalid runs.</p>"
                + _table(heads, rows, numbers={2, 3, 4}),
            )
        )
    return _page(f"{model} over time", body)


def _page(title: str, body: Iterable[str]) -> str:
    folder = files("edgectl.reports")
    style = (folder / "page.css").read_text(encoding="utf-8")
    script = (folder / "page.js").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + f"\n</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _title(title: str, sub: str) -> str:
    return (
        f"<header><div><h1>{escape(title)}</h1><p class=sub>{escape(sub)}</p></div>"
        '<button id="theme" type="button">Light / dark</button></header>'
    )


def _head(report: BenchmarkReport) -> str:
    board = report.provenance.board or report.device
    return _title(report.model, f"{report.precision}, {board}, {report.created}")


def _notices(report: BenchmarkReport) -> str:
    parts = []
    if report.emulated:
        parts.append(
            '<div class="notice" id="emulated"><b>Emulated.</b> This ran on a virtual Pi: no time '
            "on this page is a Raspberry Pi's.</div>"
        )
    reasons = [(run_name(run), why) for run in report.runs for why in run.invalid]
    if reasons:
        items = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in reasons)
        parts.append(
            f'<div class="notice bad" id="invalid"><b>Invalid runs.</b> Do not quote their '
            f"figures.<ul>{items}</ul></div>"
        )
    notes = sorted({n for run in report.runs for n in run.notes if not n.startswith("emulated")})
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        parts.append(f'<div class="notice"><b>Notes.</b><ul>{items}</ul></div>')
    return "".join(parts)


def _tiles(report: BenchmarkReport) -> str:
    candidates = [run for run in report.runs if run.valid] or report.runs
    best = min(candidates, key=lambda run: run.quantiles[0].value_ms / run.samples_per_query)
    said = run_name(best) if best.valid else f"{run_name(best)} (invalid)"
    by_percentile = {q.percentile: q for q in best.quantiles}
    tiles = [
        (f"{best.quantiles[0].value_ms:.2f} ms", f"median, {said}"),
        (f"{by_percentile[90.0].value_ms:.2f} ms", "90th percentile of the same"),
        (f"{best.throughput:.2f}", "samples a second"),
        (bytes_text(best.peak_rss_bytes), "peak memory"),
        (f"{best.load_ms:.0f} ms", "to load the model"),
    ]
    inner = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name in tiles
    )
    return f'<div class="tiles">{inner}</div>'


def _runs_table(report: BenchmarkReport) -> str:
    rows = []
    for run in report.runs:
        by_percentile = {q.percentile: q for q in run.quantiles}
        rows.append(
            [
                run_name(run),
                str(run.queries),
                metric_text(run),
                *(_ms(by_percentile[p].value_ms) for p in (50.0, 90.0, 99.0)),
                f"{run.throughput:.2f}",
                _verdict(run),
            ]
        )
    heads = ["run", "queries", "result", "p50 ms", "p90 ms", "p99 ms", "samples/s", ""]
    found = "".join(f"<p>{escape(capacity_text(c))}</p>" for c in report.capacities)
    return _section("Runs", _table(heads, rows, numbers={1, 2, 3, 4, 5, 6}) + found)


def _verdict(run: Run) -> _Markup:
    return _Markup(
        '<span class="ok">valid</span>' if run.valid else '<span class="no">invalid</span>'
    )


def _run_section(number: int, run: Run) -> str:
    marks = [(f"p{q.percentile:g}", q.value_ms) for q in run.quantiles[:4]]
    rows = [
        [
            f"{q.percentile:g}",
            _ms(q.value_ms),
            _range(q.low_ms, q.high_ms),
            _ms(q.early_stopping_ms)
            if q.early_stopping_ms is not None
            else f"needs {q.needed_queries} queries",
        ]
        for q in run.quantiles
    ]
    heads = ["percentile", "latency ms", "99 % interval", "MLPerf early stopping ms"]
    spans = (
        f"<p class=sub>{run.queries} queries in {run.duration_s:.1f} s after {run.warmup_calls} "
        f"warm-up calls; mean {run.mean_ms:.3f} ms, {run.min_ms:.3f} to {run.max_ms:.3f}.</p>"
    )
    return _section(
        f"{number}. {run_name(run)}",
        spans
        + f'<div class="card"><h3>Latency</h3>{histogram(run.latencies_ms, marks)}</div>'
        + _table(heads, rows, numbers={0, 1, 2, 3})
        + f'<div class="card"><h3>During the run</h3>{_over_time(run)}</div>',
    )


def _over_time(run: Run) -> str:
    seconds = [start / 1000.0 for start in run.starts_ms]
    panels = [Panel(label="latency, ms", x=seconds, y=run.latencies_ms, kind="dots", height=190)]
    heat = [(p.time_s, p.temperature_celsius) for p in run.trace]
    clock = [(p.time_s, max(p.cpu_frequency_mhz, default=None)) for p in run.trace]
    load = [(p.time_s, p.other_load) for p in run.trace]
    for label, points, style in (
        ("temperature, C", heat, "warm"),
        ("clock, MHz", clock, "green"),
        ("other programs, processors", load, "soft"),
    ):
        known = [(x, y) for x, y in points if y is not None]
        panels.append(
            Panel(
                label=label,
                x=[x for x, _ in known],
                y=[y for _, y in known],
                style=style,
                height=84,
                from_zero=style == "soft",
            )
        )
    bands = [
        (before.time_s, point.time_s)  # it began at some time between the two looks
        for before, point in pairwise(run.trace)
        if (point.throttle_flags or 0) & 0xF
    ]
    return time_panels(panels, bands)


def _layers(layers: Sequence[LayerCost]) -> str:
    ordered = sorted(layers, key=lambda layer: -layer.time_ms)
    bars = layer_bars([(c.name, c.operator, c.time_ms, c.share) for c in ordered[:_MOST_BARS]])
    heads = ["layer", "operator", "ms", "share", "M MACs", "kB"]
    head = "".join(
        f'<th data-sort tabindex="0"{" class=n" if i > 1 else ""}>{name}</th>'
        for i, name in enumerate(heads)
    )
    rows = "".join(
        f'<tr><td class="name"><code>{escape(c.name)}</code></td><td>{escape(c.operator)}</td>'
        + "".join(
            f'<td class="n" data-value="{value!r}">{text}</td>'
            for value, text in (
                (c.time_ms, f"{c.time_ms:.3f}"),
                (c.share, f"{c.share:.1%}"),
                (c.macs, f"{c.macs / 1e6:.2f}"),
                (c.bytes, f"{c.bytes / 1e3:.1f}"),
            )
        )
        + "</tr>"
        for c in ordered
    )
    rest = ""
    if len(ordered) > _MOST_BARS:
        share = sum(c.share for c in ordered[:_MOST_BARS])
        rest = (
            f"<p class=sub>The {_MOST_BARS} slowest of {len(ordered)}: {share:.1%} of the time.</p>"
        )
    return _section(
        "Layers",
        f'<div class="card">{bars}</div>{rest}'
        '<div class="search"><input type="search" data-table="layers" '
        'placeholder="Search layers" aria-label="Search layers">'
        '<span class=sub id="layers-count"></span></div>'
        f'<div class="scroll"><table id="layers"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>",
    )


def _accuracy(report: BenchmarkReport, quantization: Mapping[str, Any] | None) -> str:
    errors = [r.worst_relative_error for r in report.runs if r.worst_relative_error is not None]
    words = "<p>Outputs were compared with the golden calls before and after every run"
    words += f"; the largest relative error is {max(errors):.2g}.</p>" if errors else ".</p>"
    rows = _flat(quantization or {})
    return _section("Accuracy", words + (_facts(rows) if rows else ""))


def _flat(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """The figures and words of a document of some depth; its lists are left to the JSON."""
    rows: list[tuple[str, str]] = []
    for key, value in document.items():
        name = f"{prefix}{key.replace('_', ' ')}"
        if isinstance(value, Mapping):
            rows += _flat(value, f"{name}: ")
        elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
            rows.append((name, f"{value:.4g}" if isinstance(value, float) else str(value)))
    return rows


def _coverage(coverage: CoverageSummary) -> str:
    counts = ", ".join(f"{count} {where}" for where, count in sorted(coverage.operations.items()))
    share = coverage.integer_macs / coverage.macs if coverage.macs else 0.0
    inner = (
        f"<p>Operations: {escape(counts)}. {coverage.macs / 1e6:.1f} M multiply-accumulates, "
        f"{share:.1%} of them integer.</p>"
    )
    if coverage.fallbacks:
        rows = [list(row) for row in coverage.fallbacks]
        inner += "<h3>Left TOSA</h3>" + _table(["module", "operator", "reason"], rows)
    return _section("Coverage", inner)


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inner}</section>"


def _facts(rows: Iterable[tuple[str, str]]) -> str:
    inner = "".join(f"<dt>{escape(n)}</dt><dd>{escape(v)}</dd>" for n, v in rows)
    return f'<div class="card"><dl>{inner}</dl></div>'


class _Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: set[int] | None = None
) -> str:
    numeric = numbers or set()

    def cell(tag: str, index: int, text: str) -> str:
        kind = ' class="n"' if index in numeric else ""
        return f"<{tag}{kind}>{text if isinstance(text, _Markup) else escape(text)}</{tag}>"

    head = "".join(cell("th", i, text) for i, text in enumerate(heads))
    body = "".join(
        f"<tr>{''.join(cell('td', i, text) for i, text in enumerate(row))}</tr>" for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "too few queries"
    return f"{'?' if low is None else f'{low:.3f}'} to {'?' if high is None else f'{high:.3f}'}"
