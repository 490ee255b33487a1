"""Packs a convolution's constants the way the kernels read them.

The blob is one byte string: the record of ``kernels/conv_params.h``, bias, scales, weights in
panels
and a row of padding, each part aligned to 64 bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgectl.codegen.kernels.shapes import Activation, Convolution, Requantization
from edgectl.codegen.kernels.winograd import POINTS, block_tiles, pack_winograd, tile_count

__all__ = [
    "MAGIC_BITS",
    "Layout",
    "Plan",
    "fits_narrow",
    "pack_blob",
    "pack_depthwise",
    "pack_panels",
]

MAGIC_BITS = 0x4B400000  # 12582912.0f: the float whose mantissa counts in ones
_ALIGNMENT = 64
_DIRECT, _TAPS, _PACKED = 0, 1, 2
_NARROW, _CLAMP, _SMALL = 1, 2, 4
_FRAME_POINTERS = 1024  # gemm_frame.h
_FRAME_PACKED_BYTES = 16384
_BLOCK_BYTES = 24 * 1024  # input rows that should stay in a 32 KiB first-level cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a kernel wants its weights and how it walks the output.

    ``interleave`` consecutive depths of one channel lie side by side within a panel of
    ``tile_cols`` channels; the last panel is halved while it still holds what is left, down to
    ``least_cols``. A tile of few rows costs at least the share ``low_tile`` of a whole one.
    """

    tile_rows: int
    tile_cols: int
    least_cols: int
    interleave: int
    depth_step: int
    element_bytes: int
    lanes: int = 16  # depthwise: channels of a chunk
    narrow: bool = False
    low_tile: float = 0.45
    columns_of_four: bool = False  # depthwise: four rows of a kernel column side by side, for SDOT
    winograd: bool = False  # workgroups own tiles of 4x4 outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one convolution is split: mode, padded depth, and the grid of workgroups."""

    mode: int
    depth: int
    taps: int
    rows_per_group: int
    cols_per_group: int
    col_groups: int
    block_rows: int
    groups: int


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _mode_and_depth(conv: Convolution, layout: Layout) -> tuple[int, int, int]:
    g = conv.geometry
    if g.depthwise:
        return _TAPS, 1, g.taps
    if g.in_c % layout.depth_step == 0:
        if g.is_matrix_product:
            return _DIRECT, g.in_c, 1
        if g.taps * layout.tile_rows <= _FRAME_POINTERS:
            return _TAPS, g.in_c, g.taps
    return _PACKED, _round_up(g.taps * g.in_c, layout.depth_step), 1


def plan(
    conv: Convolution, layout: Layout, *, cores: int, work_per_group: int = 400_000
) -> Plan | None:
    """Splits a convolution over workgroups; ``None`` when its rows do not fit the stack buffers."""
    g = conv.geometry
    if layout.winograd:
        return _plan_tiles(conv, cores)
    mode, depth, taps = _mode_and_depth(conv, layout)
    row_bytes = depth * layout.element_bytes
    if mode == _PACKED and row_bytes > _FRAME_PACKED_BYTES:
        return None
    if mode == _PACKED:
        block = _FRAME_PACKED_BYTES // row_bytes
    elif mode == _TAPS:
        block = _FRAME_POINTERS // taps
    else:
        block = max(2 * layout.tile_rows, _BLOCK_BYTES // row_bytes)
    block = min(64, block)
    if block > layout.tile_rows:
        block -= block % layout.tile_rows
    block = max(1, block)
    wanted = max(1, min(4 * cores, g.macs // work_per_group))
    if wanted > cores:
        wanted = _round_up(wanted, cores)
    if g.depthwise:
        # Whole lines: a strip of pixels ends where its line does.
        lines = g.batch * g.out_h
        rows_per_group = g.out_w * -(-lines // min(wanted, lines))
        block = rows_per_group
    else:
        rows_per_group, block = _split_rows(g.rows, layout, block, wanted, cores)
    row_groups = -(-g.rows // rows_per_group)
    panel = g.out_c if g.depthwise else layout.tile_cols
    col_groups = 1
    if not g.depthwise and row_groups < min(wanted, cores):
        col_groups = min(-(-g.out_c // panel), -(-wanted // row_groups))
    cols_per_group = g.out_c if col_groups == 1 else _round_up(-(-g.out_c // col_groups), panel)
    col_groups = -(-g.out_c // cols_per_group)
    return Plan(
        mode=mode,
        depth=depth,
        taps=taps,
        rows_per_group=rows_per_group,
        cols_per_group=cols_per_group,
        col_groups=col_groups,
        block_rows=block,
        groups=row_groups * col_groups,
    )


def _plan_tiles(conv: Convolution, cores: int) -> Plan:
    """Blocks of tiles over the cores, as even as they go."""
    tiles_of_block = block_tiles(conv.geometry)
    blocks = -(-tile_count(conv.geometry) // tiles_of_block)
    groups = min(blocks, 2 * cores if blocks >= 8 * cores else cores)
    tiles = tiles_of_block * -(-blocks // groups)
    return Plan(
        mode=_TAPS,
        depth=conv.geometry.in_c,
        taps=POINTS,
        rows_per_group=tiles,
        cols_per_group=conv.geometry.out_c,
        col_groups=1,
        block_rows=tiles_of_block,
        groups=-(-tile_count(conv.geometry) // tiles),
    )


def _split_rows(
    rows: int, layout: Layout, largest_block: int, wanted: int, cores: int
) -> tuple[int, int]:
    """Rows of a workgroup and of a block in it: few low tiles, and cores that end together.

    A tile loads its weights whatever its height, and a low one waits for its own sums: 49 rows are
    better seven times seven than six times eight and one.
    """
    best, chosen = float("inf"), (rows, largest_block)
    for groups in range(1, min(wanted, -(-rows // layout.tile_rows)) + 1):
        count = -(-rows // groups)
        made = -(-rows // count)
        for block in _blocks(count, layout.tile_rows, largest_block):
            whole = _work(count, block, layout)
            total = whole * (made - 1) + _work(rows - count * (made - 1), block, layout)
            # What all cores spend together, and the share of the slowest one.
            cost = total + 0.5 * cores * whole * -(-made // cores)
            if cost < best - 1e-9:
                best, chosen = cost, (count, block)
    return chosen


def _blocks(rows: int, tile: int, largest: int) -> set[int]:
    """Block heights worth a try: as few blocks as fit, all alike, or of whole tiles."""
    even = -(-rows // -(-rows // largest))
    return {even, max(1, min(largest, _round_up(even, tile)))}


def _work(rows: int, block: int, layout: Layout) -> float:
    """Cost of so many rows cut into blocks and those into tiles of nearly one height (in rows)."""
    total, tile = 0.0, layout.tile_rows
    for first in range(0, rows, block):
        left = min(block, rows - first)
        tiles = -(-left // tile)
        low, taller = divmod(left, tiles)
        for here in [low + 1] * taller + [low] * (tiles - taller):
            total += max(here, layout.low_tile * tile) + 0.07 * tile
    return total


def pack_panels(weights: NDArray[np.generic], layout: Layout, plan: Plan) -> bytes:
    """[out_c, k_h, k_w, in_c] -> panels of [taps][depth / interleave][columns][interleave]."""
    out_c = weights.shape[0]
    flat = weights.reshape(out_c, plan.taps, -1)
    padded = np.zeros((out_c, plan.taps, plan.depth), weights.dtype)
    padded[:, :, : flat.shape[2]] = flat
    parts = []
    for first in range(0, out_c, layout.tile_cols):
        chunk = padded[first : first + layout.tile_cols]
        width = layout.tile_cols
        while width // 2 >= layout.least_cols and width // 2 >= chunk.shape[0]:
            width //= 2
        panel = np.zeros((width, plan.taps, plan.depth), weights.dtype)
        panel[: chunk.shape[0]] = chunk
        panel = panel.reshape(width, plan.taps, -1, layout.interleave)
        parts.append(np.ascontiguousarray(panel.transpose(1, 2, 0, 3)).tobytes())
    return b"".join(parts)


def pack_columns(weights: NDArray[np.generic]) -> bytes:
    """[k, k, channels], k = 3 or 5 -> per eight channels [k][8][4]; 5x5: a fifth row [5][8]."""
    size, _, channels = weights.shape
    four = np.zeros((4, size, channels), weights.dtype)
    four[: min(size, 4)] = weights[:4]
    columns = (
        four.reshape(4, size, channels // 8, 8).transpose(2, 1, 3, 0).reshape(channels // 8, -1)
    )
    fifth = weights[4:].reshape(-1, channels // 8, 8).transpose(1, 0, 2).reshape(channels // 8, -1)
    return np.ascontiguousarray(np.concatenate([columns, fifth], axis=1)).tobytes()


def pack_depthwise(weights: NDArray[np.generic], layout: Layout) -> bytes:
    """[k_h, k_w, channels] -> [channels / lanes][taps][lanes]."""
    channels = weights.shape[2]
    padded = np.zeros(
        (weights.shape[0] * weights.shape[1], _round_up(channels, layout.lanes)), weights.dtype
    )
    padded[:, :channels] = weights.reshape(-1, channels)
    chunks = padded.reshape(padded.shape[0], -1, layout.lanes).transpose(1, 0, 2)
    return np.ascontiguousarray(chunks).tobytes()


def fits_small(conv: Convolution) -> bool:
    """Whether every possible sum is below 2^15 - 256 once scaled."""
    if not isinstance(conv.epilogue, Requantization):
        return False
    scaled = _largest_sums(conv) * np.abs(conv.epilogue.scale.astype(np.float64))
    return bool(scaled.max() < (1 << 15) - 256)


def fits_narrow(conv: Convolution) -> bool:
    """Whether every possible sum is below 2^22, and below 2^15 - 256 once scaled."""
    return fits_small(conv) and bool(_largest_sums(conv).max() < (1 << 22) - 1)


def _largest_sums(conv: Convolution) -> NDArray[np.int64]:
    weights = np.abs(conv.weights.astype(np.int64))
    total = weights.sum(axis=(0, 1) if conv.geometry.depthwise else (1, 2, 3)) * 128
    result: NDArray[np.int64] = total + np.abs(conv.bias.astype(np.int64))
    return result


def _padded(vector: NDArray[np.generic], fill: float = 0) -> NDArray[np.generic]:
    out = np.full(_round_up(vector.size, 16), fill, vector.dtype)
    out[: vector.size] = vector
    return out


def pack_blob(conv: Convolution, layout: Layout, plan: Plan) -> bytes:
    """The constant operand of one dispatch."""
    g, epilogue = conv.geometry, conv.epilogue
    if layout.winograd:
        weights = pack_winograd(conv.weights)
    elif layout.columns_of_four:
        weights = pack_columns(conv.weights)
    elif g.depthwise:
        weights = pack_depthwise(conv.weights, layout)
    else:
        weights = pack_panels(conv.weights, layout, plan)
    bias: NDArray[Any] = _padded(conv.bias)
    flags, scale, quantized, bounds = 0, b"", (0, 0, 0), (0.0, 0.0)
    if isinstance(epilogue, Requantization):
        scale = _padded(epilogue.scale).tobytes()
        quantized = (epilogue.zero_point, epilogue.low, epilogue.high)
        if layout.narrow and fits_narrow(conv):
            flags |= _NARROW
            bias = bias + np.int32(MAGIC_BITS)
        elif fits_small(conv):
            flags |= _SMALL
    elif isinstance(epilogue, Activation):
        bounds = (epilogue.low, epilogue.high)
        if bounds != (float("-inf"), float("inf")):
            flags |= _CLAMP
    # A depthwise kernel walks a whole padding row by pixels, the others read one pixel of it.
    pad_elements = (
        max(g.in_w, g.k_w * g.dilation_w) * g.in_c if g.depthwise else max(g.in_c, plan.depth)
    )
    pad = np.full(pad_elements + 64, conv.pad_value, conv.weights.dtype).tobytes()
    parts, offsets, at = [], [], _ALIGNMENT * 3
    for part in (bias.tobytes(), scale, weights, pad):
        offsets.append(at)
        parts.append(part.ljust(_round_up(len(part), _ALIGNMENT), b"\0"))
        at += len(parts[-1])
    head = struct.pack(
        "<28i2f4i",
        g.batch,
        g.in_h,
        g.in_w,
        g.in_c,
        g.out_h,
        g.out_w,
        g.out_c,
        g.k_h,
        g.k_w,
        g.stride_h,
        g.stride_w,
        g.dilation_h,
        g.dilation_w,
        g.pad_top,
        g.pad_left,
        plan.mode,
        flags,
        plan.depth,
        plan.taps,
        g.rows,
        plan.rows_per_group,
        plan.cols_per_group,
        plan.col_groups,
        plan.block_rows,
        conv.pad_value,
        *quantized,
        *bounds,
        *offsets,
    )
    return head.ljust(_ALIGNMENT * 3, b"\0") + b"".join(parts)
