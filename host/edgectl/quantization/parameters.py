"""Scales and zero points: ``real = scale * (integer - zero_point)``."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["INT8_MAX", "INT8_MIN", "ActivationParameters", "activation_parameters", "weight_scales"]

INT8_MIN, INT8_MAX = -128, 127
_SMALLEST_SCALE = 1e-12
# The finest scale of a channel against the coarsest of its tensor. A (nearly) dead channel with a
# scale of its own size would need factors that no accumulator can reach, and kernels refuse them;
# at this spread its error stays thousands of times below that of its neighbours.
_SPREAD = 2.0**-11


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationParameters:
    """How one activation is stored as int8; ``integer = round(real / scale) + zero_point``."""

    scale: float
    zero_point: int
    minimum: int = INT8_MIN
    maximum: int = INT8_MAX

    @property
    def range(self) -> tuple[float, float]:
        """The real values at both ends."""
        return (
            (self.minimum - self.zero_point) * self.scale,
            (self.maximum - self.zero_point) * self.scale,
        )


def activation_parameters(low: float, high: float) -> ActivationParameters:
    """The int8 scale and zero point for a range that holds zero (which is stored exactly)."""
    low, high = min(low, 0.0), max(high, 0.0)
    # Rounded to float32 at once: every later stage holds it in that precision.
    scale = max((high - low) / (INT8_MAX - INT8_MIN), _SMALLEST_SCALE)
    scale = float(torch.tensor(scale, dtype=torch.float32))
    zero_point = round(INT8_MIN - low / scale)
    return ActivationParameters(
        scale=scale, zero_point=max(INT8_MIN, min(INT8_MAX, int(zero_point)))
    )


def weight_scales(weight: torch.Tensor, axis: int | None) -> torch.Tensor:
    """Symmetric int8 scales (float32), one for each index along ``axis``, or one in all."""
    if axis is None:
        largest = weight.abs().amax().reshape(1)
    else:
        largest = weight.abs().amax(dim=[d for d in range(weight.dim()) if d != axis])
    scales = largest.float() / INT8_MAX
    return scales.clamp_min(max(float(scales.max()) * _SPREAD, _SMALLEST_SCALE))
