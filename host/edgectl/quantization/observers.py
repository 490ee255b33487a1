"""How the range of an activation is found from calibration data, one value at a time.

An observer sees every tensor that a value of the graph takes over the calibration data and keeps
a few numbers of it, so that ten thousand samples need no more memory than one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from edgectl.quantization.recipe import Observer

__all__ = ["RangeObserver", "Spread"]

_BINS = 8192  # over [-limit, limit]; the limit doubles when it must, so at least a quarter is used


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What was seen of one value: extremes, and whether something was not finite."""

    minimum: float
    maximum: float
    finite: bool
    samples: int


class RangeObserver:
    """Extremes, a moving average of them, and a histogram whose limits grow by doubling."""

    def __init__(self, *, momentum: float = 0.9) -> None:
        self._momentum = momentum
        self._minimum, self._maximum = math.inf, -math.inf
        self._average: tuple[float, float] | None = None
        self._limit = 0.0
        self._histogram = torch.zeros(_BINS, dtype=torch.float64)
        self._finite = True
        self._samples = 0

    def observe(self, value: torch.Tensor) -> None:
        """Takes one tensor into account."""
        flat = value.detach().reshape(-1).float()
        if not flat.numel():
            return
        self._samples += 1
        low, high = (float(v) for v in torch.aminmax(flat))
        if not (math.isfinite(low) and math.isfinite(high)):
            # -inf is what a mask is made of; it saturates. Anything else is reported.
            finite = flat[torch.isfinite(flat)]
            if not torch.equal(flat[~torch.isfinite(flat)].isneginf().all(), torch.tensor(True)):
                self._finite = False
            if not finite.numel():
                return
            flat = finite
            low, high = (float(v) for v in torch.aminmax(flat))
        self._minimum, self._maximum = min(self._minimum, low), max(self._maximum, high)
        if self._average is None:
            self._average = (low, high)
        else:
            keep = self._momentum
            old_low, old_high = self._average
            self._average = (
                keep * old_low + (1 - keep) * low,
                keep * old_high + (1 - keep) * high,
            )
        self._count(flat, max(abs(low), abs(high)))

    def _count(self, flat: torch.Tensor, reach: float) -> None:
        if reach == 0.0:
            reach = 1e-30
        if self._limit == 0.0:
            self._limit = reach
        while self._limit < reach:
            merged = self._histogram.reshape(-1, 2).sum(1)
            quarter = torch.zeros(_BINS // 4, dtype=torch.float64)
            self._histogram = torch.cat([quarter, merged, quarter])
            self._limit *= 2
        counts = torch.histc(flat, bins=_BINS, min=-self._limit, max=self._limit)
        self._histogram += counts.double()

    @property
    def spread(self) -> Spread:
        """Extremes over everything seen."""
        return Spread(
            minimum=self._minimum,
            maximum=self._maximum,
            finite=self._finite,
            samples=self._samples,
        )

    def range(self, kind: Observer, *, percentile: float, levels: int) -> tuple[float, float]:
        """The range to quantize, which always holds zero."""
        if not self._samples or self._minimum > self._maximum:
            return 0.0, 0.0
        if kind == "minmax":
            low, high = self._minimum, self._maximum
        elif kind == "moving_average" and self._average is not None:
            low, high = self._average
        elif kind == "percentile":
            low, high = self._quantiles(percentile / 100)
        else:
            low, high = self._least_squares(levels)
        return min(low, 0.0), max(high, 0.0)

    def _edges(self) -> torch.Tensor:
        return torch.linspace(-self._limit, self._limit, _BINS + 1, dtype=torch.float64)

    def _quantiles(self, share: float) -> tuple[float, float]:
        total = float(self._histogram.sum())
        cumulated = torch.cumsum(self._histogram, 0)
        edges = self._edges()
        low_bin = int(torch.searchsorted(cumulated, share * total, right=True))
        high_bin = int(torch.searchsorted(cumulated, (1 - share) * total))
        low = float(edges[min(low_bin, _BINS - 1)])
        high = float(edges[min(high_bin, _BINS - 1) + 1])
        return max(low, self._minimum), min(high, self._maximum)

    def _least_squares(self, levels: int) -> tuple[float, float]:
        """The range with the least expected squared error (rounding plus clipping)."""
        centres = (self._edges()[1:] + self._edges()[:-1]) / 2
        used = self._histogram > 0
        centres, counts = centres[used], self._histogram[used]
        low, high = min(self._minimum, 0.0), max(self._maximum, 0.0)
        best = (math.inf, low, high)
        shares = [1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5, 0.4, 0.3]
        for low_share in shares if low < 0 else [1.0]:
            for high_share in shares if high > 0 else [1.0]:
                a, b = low * low_share, high * high_share
                step = (b - a) / (levels - 1)
                if step <= 0:
                    continue
                outside = (centres - centres.clamp(a, b)) ** 2
                inside = (centres >= a) & (centres <= b)
                error = float((counts * (outside + inside * step * step / 12)).sum())
                best = min(best, (error, a, b))
        return best[1], best[2]
