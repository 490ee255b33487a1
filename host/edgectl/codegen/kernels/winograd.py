"""Winograd's F(4x4, 3x3): when it pays, and its weights.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015), with the points 0,
+-sqrt(1/2), +-sqrt(2) and infinity, which keep more digits than 0, +-1, +-2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgectl.codegen.kernels.shapes import Geometry

__all__ = ["POINTS", "block_tiles", "pack_winograd", "refusal", "tile_count", "transformed"]

POINTS = 36
_LARGEST_BLOCK = 8
_KEPT = 512  # f32_winograd.c: input channels times tiles whose transforms lie on the stack
_SIDE = 4
_PANEL = 8
_LARGEST_DEPTH = 128  # deeper, fewer than four tiles would share a weight
_LARGEST_WEIGHTS_BYTES = 10 << 20
_A, _B = float(np.sqrt(0.5)), float(np.sqrt(2.0))
# Rows [1, p, p^2] / prod(p - other points); infinity takes the last weight.
_G = np.array(
    [
        [1, 0, 0],
        *([1 / n, p / n, p * p / n] for p, n in ((_A, -1.5), (-_A, -1.5), (_B, 6.0), (-_B, 6.0))),
        [0, 0, 1],
    ]
)


def tile_count(geometry: Geometry) -> int:
    """Tiles of 4x4 outputs."""
    return geometry.batch * -(-geometry.out_h // _SIDE) * -(-geometry.out_w // _SIDE)


def block_tiles(geometry: Geometry) -> int:
    """Tiles that are computed together."""
    return min(_LARGEST_BLOCK, _KEPT // geometry.in_c)


def refusal(geometry: Geometry) -> str:
    """Why the transform is not for a convolution or would not pay; empty when it does."""
    g = geometry
    if (g.k_h, g.k_w, g.stride_h, g.stride_w, g.dilation_h, g.dilation_w) != (3, 3, 1, 1, 1, 1):
        return "only 3x3 with stride 1"
    if g.in_c % 4 or g.out_c % _PANEL or g.in_c > _LARGEST_DEPTH:
        return f"only input channels by four up to {_LARGEST_DEPTH} and output channels by eight"
    if 4 * POINTS * g.in_c * g.out_c > _LARGEST_WEIGHTS_BYTES:
        return "its transformed weights would be four times as large: more to read than is saved"
    tiles = tile_count(g)
    # Four products an instruction; the transforms take about 190 and 150 per four channels.
    transformed_cost = tiles * (POINTS * g.in_c * g.out_c + 190 * g.in_c + 150 * g.out_c) / 4
    if transformed_cost > 0.85 * g.macs / 4 or tiles < _LARGEST_BLOCK:
        return "the transforms would cost what they save"
    return ""


def transformed(weights: NDArray[Any]) -> NDArray[np.float32]:
    """[out_c, 3, 3, in_c] -> [36, in_c, out_c]: G g G', computed in float64."""
    both = np.einsum("pi,oijc,qj->pqco", _G, weights.astype(np.float64), _G)
    result: NDArray[np.float32] = both.reshape(POINTS, *both.shape[2:]).astype(np.float32)
    return result


def pack_winograd(weights: NDArray[Any]) -> bytes:
    """[out_c, 3, 3, in_c] -> [out_c / 8][36][in_c][8]."""
    points = transformed(weights)
    panels = points.reshape(POINTS, points.shape[1], -1, _PANEL).transpose(2, 0, 1, 3)
    return np.ascontiguousarray(panels).tobytes()
