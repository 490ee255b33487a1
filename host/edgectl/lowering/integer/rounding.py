"""Real factors as TOSA's 32-bit multiplier and shift."""

from __future__ import annotations

import math

import torch

__all__ = ["fixed_point"]


def fixed_point(factors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``factor == multiplier * 2**-shift`` with a multiplier in [2**30, 2**31).

    TOSA allows shifts from 2 to 62; what is smaller than 2**-32 loses digits, what is larger
    than 2**28 does not occur between an accumulator and an int8.

    Returns:
        int32 multipliers and int8 shifts, shaped like ``factors``.
    """
    multipliers, shifts = [], []
    for factor in factors.double().reshape(-1).tolist():
        mantissa, exponent = math.frexp(factor)
        multiplier, shift = round(mantissa * (1 << 31)), 31 - exponent
        if multiplier == 1 << 31:
            multiplier, shift = multiplier // 2, shift - 1
        if shift > 62:
            multiplier, shift = multiplier >> min(shift - 62, 31), 62
        if factor <= 0 or shift < 2:
            raise ValueError(f"no multiplier and shift for the factor {factor!r}")
        multipliers.append(multiplier)
        shifts.append(shift)
    return (
        torch.tensor(multipliers, dtype=torch.int32).reshape(factors.shape),
        torch.tensor(shifts, dtype=torch.int8).reshape(factors.shape),
    )
