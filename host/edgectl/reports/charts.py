"""Charts as SVG text, drawn with the page's own colours (CSS classes), no script needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

__all__ = ["Panel", "histogram", "history_chart", "layer_bars", "ticks", "time_panels"]

WIDTH, LEFT, RIGHT = 760, 62, 14
_MAX_POINTS = 1500


def ticks(low: float, high: float, *, wanted: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) from ``low`` to ``high``."""
    if high <= low:
        return [low]
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One of several charts above one another that share their time axis."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    kind: str = "line"
    style: str = "accent"
    height: int = 110
    from_zero: bool = False


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.start + share * (self.end - self.start), 2)


def histogram(
    values: Sequence[float], marks: Sequence[tuple[str, float]], *, unit: str = "ms"
) -> str:
    """Counts by latency, with named vertical marks (quantiles).

    The axis ends at the 99.9th percentile, so that one outlier does not flatten the rest; what
    lies beyond is counted in words.
    """
    data = np.asarray(values, dtype=np.float64)
    low, high = float(data.min()), float(np.percentile(data, 99.9))
    if high <= low:
        low, high = low * 0.99, max(high * 1.01, low + 1e-6)
    beyond = int((data > high).sum())
    counts, edges = np.histogram(data[data <= high], bins=_bins(data, low, high), range=(low, high))
    top, bottom = 26, 226
    x, y = _Scale(low, high, LEFT, WIDTH - RIGHT), _Scale(0, float(counts.max()), bottom, top)
    parts = _horizontal_grid(ticks(0, float(counts.max()), wanted=4), y)
    for count, left, right in zip(counts, edges[:-1], edges[1:], strict=True):
        if count:
            width = max(1.0, x(right) - x(left) - 1)
            parts.append(
                f'<rect class="bar" x="{x(left)}" y="{y(count)}" width="{width:.2f}" '
                f'height="{bottom - y(count):.2f}"><title>{count} between {left:.3f} and '
                f"{right:.3f} {unit}</title></rect>"
            )
    placed = -1e9
    for name, value in sorted(marks, key=lambda mark: mark[1]):
        if low <= value <= high:
            at = x(value)
            parts.append(f'<line class="mark" x1="{at}" x2="{at}" y1="{top}" y2="{bottom}"/>')
            if at - placed > 30:  # labels of marks close together would cover each other
                anchor = "end" if at > WIDTH - 60 else "middle"
                parts.append(
                    f'<text class="label" x="{at}" y="16" text-anchor="{anchor}">'
                    f"{escape(name)}</text>"
                )
                placed = at
    parts += _bottom_axis(ticks(low, high, wanted=7), x, bottom, f"latency, {unit}")
    if beyond:
        parts.append(
            f'<text class="label" x="{WIDTH - RIGHT}" y="{bottom + 36}" text-anchor="end">'
            f"{beyond} slower than {high:.2f} {unit}, up to {float(data.max()):.2f}</text>"
        )
    return _svg(parts, bottom + 42, "Histogram of latencies")


def _bins(data: np.ndarray, low: float, high: float) -> int:
    """Freedman and Diaconis's width, within what can be seen."""
    spread = float(np.subtract(*np.percentile(data, [75, 25])))
    width = 2 * spread / len(data) ** (1 / 3)
    return 30 if width <= 0 else int(min(80, max(8, (high - low) / width)))


def time_panels(panels: Sequence[Panel], bands: Sequence[tuple[float, float]] = ()) -> str:
    """Panels above one another over seconds; ``bands`` marks spans of time (throttling)."""
    shown = [panel for panel in panels if len(panel.y)]
    if not shown:
        return ""
    end = max(float(max(panel.x)) for panel in shown)
    start = min(0.0, *(float(min(panel.x)) for panel in shown))
    x = _Scale(start, end if end > start else start + 1, LEFT, WIDTH - RIGHT)
    parts: list[str] = []
    top = 8
    for panel in shown:
        bottom = top + panel.height
        parts += [
            f'<rect class="band" x="{x(a)}" y="{top}" width="{max(2.0, x(b) - x(a)):.2f}" '
            f'height="{panel.height}"><title>throttled</title></rect>'
            for a, b in bands
        ]
        parts += _panel(panel, x, top, bottom)
        top = bottom + 30
    parts += _bottom_axis(ticks(start, end, wanted=8), x, top - 30, "time, s")
    return _svg(parts, top + 12, "Time series")


def _panel(panel: Panel, x: _Scale, top: int, bottom: int) -> list[str]:
    xs, ys = _thinned(panel.x, panel.y)
    low, high = min(ys), max(ys)
    margin = (high - low) * 0.08 or max(abs(high) * 0.05, 0.1)
    low = 0.0 if panel.from_zero or low - margin < 0 <= low else low - margin
    y = _Scale(low, high + margin, bottom, top + 14)
    parts = _horizontal_grid(ticks(low, high + margin, wanted=3), y)
    parts.append(
        f'<text class="label strong" x="{LEFT}" y="{top + 4}">{escape(panel.label)}</text>'
    )
    if panel.kind == "dots":
        dots = "".join(f"M{x(a)} {y(b)}h0" for a, b in zip(xs, ys, strict=True))
        parts.append(f'<path class="dots {panel.style}" d="{dots}"/>')
    else:
        points = " ".join(f"{x(a)},{y(b)}" for a, b in zip(xs, ys, strict=True))
        parts.append(f'<polyline class="line {panel.style}" points="{points}"/>')
    return parts


def _thinned(x: Sequence[float], y: Sequence[float]) -> tuple[list[float], list[float]]:
    """The smallest and the largest of each stretch: spikes stay, the page stays small."""
    if len(y) <= _MAX_POINTS:
        return list(x), list(y)
    values = np.asarray(y, dtype=np.float64)
    keep: set[int] = set()
    for stretch in np.array_split(np.arange(len(values)), _MAX_POINTS // 2):
        keep |= {int(stretch[values[stretch].argmin()]), int(stretch[values[stretch].argmax()])}
    order = sorted(keep)
    return [x[i] for i in order], [y[i] for i in order]


def layer_bars(rows: Sequence[tuple[str, str, float, float]]) -> str:
    """Horizontal bars of (name, operator, milliseconds, share), in the order given."""
    label, height = 300, 22
    longest = max((ms for _, _, ms, _ in rows), default=0.0) or 1.0
    x = _Scale(0, longest, label, WIDTH - 100)
    parts = []
    for index, (name, operator, ms, share) in enumerate(rows):
        top = 4 + index * height
        shown = name if len(name) <= 42 else "..." + name[-39:]
        parts.append(
            f'<text class="label name" x="{label - 8}" y="{top + 14}" text-anchor="end">'
            f"{escape(shown)}<title>{escape(name)} ({escape(operator)})</title></text>"
            f'<rect class="bar" x="{label}" y="{top + 2}" width="{max(1.0, x(ms) - label):.2f}" '
            f'height="{height - 6}" rx="2"><title>{escape(operator)}</title></rect>'
            f'<text class="label" x="{x(ms) + 6}" y="{top + 14}">{ms:.3f} ms, {share:.1%}</text>'
        )
    return _svg(parts, 10 + len(rows) * height, "Time by layer")


def history_chart(points: Sequence[tuple[str, float, float | None, float | None, bool]]) -> str:
    """(when, value, low, high, valid) in ms, oldest first, at equal distances."""
    top, bottom = 34, 250
    values = [v for _, v, *_ in points]
    lows = [low for _, _, low, _, _ in points if low is not None]
    highs = [high for _, _, _, high, _ in points if high is not None]
    low, high = min(values + lows), max(values + highs)
    margin = (high - low) * 0.1 or high * 0.05 or 1.0
    y = _Scale(max(0.0, low - margin), high + margin, bottom, top)
    x = _Scale(0, max(1, len(points) - 1), LEFT + 20, WIDTH - RIGHT - 20)
    parts = _horizontal_grid(ticks(y.low, y.high, wanted=5), y)
    line = " ".join(f"{x(i)},{y(p[1])}" for i, p in enumerate(points))
    parts.append(f'<polyline class="line accent" points="{line}"/>')
    parts.append(f'<text class="label strong" x="{LEFT}" y="14">median latency, ms</text>')
    every = max(1, math.ceil(len(points) / 6))
    for i, (when, value, lower, upper, valid) in enumerate(points):
        at = x(i)
        if lower is not None and upper is not None:
            parts.append(
                f'<line class="error" x1="{at}" x2="{at}" y1="{y(lower)}" y2="{y(upper)}"/>'
            )
        parts.append(
            f'<circle class="point{"" if valid else " bad"}" cx="{at}" cy="{y(value)}" r="4.5">'
            f"<title>{escape(when)}: {value:.3f} ms{'' if valid else ' (invalid)'}</title></circle>"
        )
        if i % every == 0:
            parts.append(
                f'<text class="label" x="{at}" y="{bottom + 18}" text-anchor="middle">'
                f"{escape(when[:10])}</text>"
            )
    return _svg(parts, bottom + 26, "Latency over time")


def _horizontal_grid(values: Sequence[float], y: _Scale) -> list[str]:
    return [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(v)}" y2="{y(v)}"/>'
        f'<text class="label" x="{LEFT - 8}" y="{y(v) + 4}" text-anchor="end">{v:g}</text>'
        for v in values
    ]


def _bottom_axis(values: Sequence[float], x: _Scale, bottom: float, title: str) -> list[str]:
    parts = [f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>']
    parts += [
        f'<text class="label" x="{x(v)}" y="{bottom + 17}" text-anchor="middle">{v:g}</text>'
        for v in values
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text class="label strong" x="{middle}" y="{bottom + 36}" text-anchor="middle">'
        f"{escape(title)}</text>"
    )
    return parts


def _svg(parts: Sequence[str], height: float, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )
