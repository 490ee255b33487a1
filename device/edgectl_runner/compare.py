"""Compares what the device computed with what eager PyTorch answered.

Errors: *relative* is the largest absolute difference over the largest absolute expected value of
the whole output, so that a zero in it does not make the figure infinite. Integers and booleans
must be equal. Where PyTorch answers NaN or infinity the device must answer the same; anywhere
else a NaN or infinity is a failure whatever the limits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from edgectl_runner.contract import GoldenLimits, OutputComparison

__all__ = ["compare_outputs"]

_LARGEST = sys.float_info.max
_BLOCK = 1 << 18  # elements; keeps the float64 copies small beside the arrays


def compare_outputs(
    name: str, call: int, got: Any, expected: Any, limits: GoldenLimits
) -> OutputComparison:
    """One output of one call; arrays of any shape and dtype (float64 arithmetic inside)."""
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return _failed(
            name,
            call,
            f"expected shape {expected.shape} {expected.dtype}, got {got.shape} {got.dtype}",
        )
    if expected.size == 0:
        return _verdict(name, call, (0.0, 0.0, None, None, None), True, None)
    exact = expected.dtype.kind in "biu"
    is_complex = expected.dtype.kind == "c"
    if is_complex:
        # Real and imaginary parts side by side: the same figures on twice the elements.
        got, expected = _as_real(got), _as_real(expected)
    problem = _non_finite_problem(got, expected)
    figures = _figures(got, expected)
    if is_complex:
        figures = (*figures[:4], None)  # real and imaginary part are no two classes
    if problem is not None:
        return _verdict(name, call, figures, False, problem)
    if exact:
        wrong = int(np.count_nonzero(got != expected))
        reason = f"{wrong} of {expected.size} elements differ" if wrong else None
        if wrong and limits.min_sqnr_db is not None and expected.dtype.kind != "b":
            # Quantized outputs: rounding differs by design, so the limits decide.
            return _verdict(name, call, figures, *_within(figures, limits))
        return _verdict(name, call, figures, not wrong, reason)
    return _verdict(name, call, figures, *_within(figures, limits))


Figures = tuple[float, float, float | None, float | None, float | None]


def _within(figures: Figures, limits: GoldenLimits) -> tuple[bool, str | None]:
    absolute, relative, _, sqnr_db, _ = figures
    reasons = []
    if limits.max_relative_error is not None and not relative <= limits.max_relative_error:
        reasons.append(
            f"relative error {relative:.3g} is above {limits.max_relative_error:.3g} "
            f"(largest difference {absolute:.3g})"
        )
    if limits.min_sqnr_db is not None and sqnr_db is not None and sqnr_db < limits.min_sqnr_db:
        reasons.append(f"SQNR {sqnr_db:.1f} dB is below {limits.min_sqnr_db:.1f} dB")
    return not reasons, "; ".join(reasons) or None


def _figures(got: np.ndarray, expected: np.ndarray) -> Figures:
    """(max absolute error, max relative error, cosine, SQNR in dB, top-1 agreement)."""
    worst = largest = scale = 0.0
    for e, g in _finite_blocks(got, expected):
        worst = max(worst, float(np.abs(g - e).max()))
        largest = max(largest, float(np.abs(e).max()))
        scale = max(scale, largest, float(np.abs(g).max()))
    signal = noise = dot = power = 0.0
    for e, g in _finite_blocks(got, expected):
        # Scaled to at most 1, so that squares neither overflow nor vanish.
        e, g = (e / scale, g / scale) if scale > 0.0 else (e, g)
        difference = g - e
        signal += float(e @ e)
        noise += float(difference @ difference)
        dot += float(e @ g)
        power += float(g @ g)
    relative = worst / largest if largest > 0.0 else (0.0 if worst == 0.0 else math.inf)
    norms = math.sqrt(signal) * math.sqrt(power)
    cosine = max(-1.0, min(1.0, dot / norms)) if norms > 0.0 else None
    if noise == 0.0:
        sqnr_db = None
    else:
        sqnr_db = 10.0 * math.log10(signal / noise) if signal > 0.0 else -math.inf
    return worst, relative, cosine, sqnr_db, _top1_agreement(got, expected)


def _finite_blocks(
    got: np.ndarray, expected: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(expected, got) in float64, block by block, without places where either is not finite."""
    flat_got, flat_expected = got.reshape(-1), expected.reshape(-1)
    for start in range(0, expected.size, _BLOCK):
        e = flat_expected[start : start + _BLOCK].astype(np.float64)
        g = flat_got[start : start + _BLOCK].astype(np.float64)
        finite = np.isfinite(e) & np.isfinite(g)
        if not finite.all():
            e, g = e[finite], g[finite]
        if e.size:
            yield e, g


def _top1_agreement(got: np.ndarray, expected: np.ndarray) -> float | None:
    if expected.ndim == 0 or expected.shape[-1] < 2 or expected.dtype.kind == "b":
        return None
    same = np.argmax(got, axis=-1) == np.argmax(expected, axis=-1)
    return float(np.mean(same))


def _non_finite_problem(got: np.ndarray, expected: np.ndarray) -> str | None:
    if expected.dtype.kind in "biu":
        return None
    nan_got, nan_expected = np.isnan(got), np.isnan(expected)
    extra = int(np.count_nonzero(nan_got & ~nan_expected))
    if extra:
        return f"{extra} of {got.size} elements are NaN where PyTorch has numbers"
    lost = int(np.count_nonzero(nan_expected & ~nan_got))
    if lost:
        return f"{lost} of {got.size} elements are numbers where PyTorch has NaN"
    infinite = np.isinf(expected) | np.isinf(got)
    different = int(np.count_nonzero(infinite & ~nan_expected & (got != expected)))
    if different:
        return f"{different} of {got.size} elements differ in being infinite"
    return None


def _as_real(array: np.ndarray) -> np.ndarray:
    return np.stack([array.real, array.imag], axis=-1)


def _failed(name: str, call: int, reason: str) -> OutputComparison:
    return _verdict(name, call, (math.inf, math.inf, None, None, None), False, reason)


def _verdict(
    name: str, call: int, figures: Figures, passed: bool, reason: str | None
) -> OutputComparison:
    absolute, relative, cosine, sqnr_db, top1 = figures
    # JSON has no infinity; the largest float says the same and stays a number for every reader.
    absolute, relative = min(absolute, _LARGEST), min(relative, _LARGEST)
    if sqnr_db is not None:
        sqnr_db = max(sqnr_db, -_LARGEST)
    return OutputComparison(
        name=name,
        call=call,
        max_absolute_error=absolute,
        max_relative_error=relative,
        cosine=cosine,
        sqnr_db=sqnr_db,
        top1_agreement=top1,
        passed=passed,
        reason=reason,
    )
