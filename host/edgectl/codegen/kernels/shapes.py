"""What a kernel is asked to compute: geometry, constants and the arithmetic after the sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Activation", "Convolution", "Geometry", "Requantization"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A 2-D convolution over channels-last data; a matrix product is one with a 1x1 kernel."""

    batch: int
    in_h: int
    in_w: int
    in_c: int
    out_h: int
    out_w: int
    out_c: int
    k_h: int = 1
    k_w: int = 1
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    pad_top: int = 0
    pad_left: int = 0
    depthwise: bool = False

    @property
    def rows(self) -> int:
        """Output pixels."""
        return self.batch * self.out_h * self.out_w

    @property
    def taps(self) -> int:
        """Positions of the kernel."""
        return self.k_h * self.k_w

    @property
    def macs(self) -> int:
        """Multiply-accumulates, padding counted."""
        depth = 1 if self.depthwise else self.in_c
        return self.rows * self.out_c * self.taps * depth

    @property
    def is_matrix_product(self) -> bool:
        """The input, as it lies in memory, is the left matrix."""
        return (
            not self.depthwise
            and self.taps == 1
            and (self.stride_h, self.stride_w) == (1, 1)
            and (self.pad_top, self.pad_left) == (0, 0)
            and (self.in_h, self.in_w) == (self.out_h, self.out_w)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Requantization:
    """``clamp(round_half_even(float32(sum) * scale[c]) + zero_point, low, high)`` as int8."""

    scale: NDArray[np.float32]
    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """``min(max(sum, low), high)`` in the sum's own type; infinite where there is no bound."""

    low: float = float("-inf")
    high: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """Everything about one convolution that is known at compile time.

    ``weights`` is [out_c, k_h, k_w, in_c], depthwise [k_h, k_w, channels]. ``bias`` has the
    accumulator's type and already holds what the input's zero point contributes. ``pad_value``
    is what the input reads as outside its borders.
    """

    element: str
    geometry: Geometry
    weights: NDArray[np.generic]
    bias: NDArray[np.generic]
    epilogue: Requantization | Activation
    pad_value: int = 0
