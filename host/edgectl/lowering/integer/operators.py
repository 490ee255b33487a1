"""Integer arithmetic as operators of PyTorch (namespace ``edgectl``), each with its exact meaning.

The fold puts them into the graph, so that the integer program runs in PyTorch and can be compared
with the fake-quantized one and with the device; `edgectl.lowering.integer.expand` spells them in
TOSA. Images are channels-last ([N, H, W, C]), accumulators int32, scales float32.

Two roundings exist. ``requantize`` multiplies by a float32 scale and rounds half to even, which
takes six NEON instructions for four values; ``rescale`` is TOSA's own, bit for bit.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

__all__ = ["NAMESPACE", "TABLE_OFFSET"]

NAMESPACE = "edgectl"
TABLE_OFFSET = 128  # a table's entry for the value -128 comes first

_library = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
_SCHEMAS = (
    "quantize(Tensor x, float scale, int zero_point, int minimum, int maximum) -> Tensor",
    "dequantize(Tensor x, float scale, int zero_point) -> Tensor",
    "conv2d(Tensor x, Tensor weight, Tensor bias, int[] stride, int[] dilation) -> Tensor",
    (
        "depthwise_conv2d(Tensor x, Tensor weight, Tensor bias, int[] stride, int[] dilation)"
        " -> Tensor"
    ),
    (
        "transpose_conv2d(Tensor x, Tensor weight, Tensor bias, int[] out_pad, int[] stride,"
        " int zero_point) -> Tensor"
    ),
    "fully_connected(Tensor x, Tensor weight, Tensor bias) -> Tensor",
    "matmul(Tensor a, Tensor b, int a_zero, int b_zero) -> Tensor",
    "sum(Tensor x, int[] dims) -> Tensor",
    (
        "requantize(Tensor x, Tensor scale, int offset, int zero_point, int minimum, int maximum)"
        " -> Tensor"
    ),
    (
        "rescale(Tensor x, Tensor multiplier, Tensor shift, int offset, int zero_point,"
        " int minimum, int maximum) -> Tensor"
    ),
    "accumulator_to_float(Tensor x, Tensor scale, int offset) -> Tensor",
    (
        "add(Tensor a, Tensor b, float a_scale, int a_zero, float b_scale, int b_zero,"
        " int zero_point, int minimum, int maximum) -> Tensor"
    ),
    (
        "multiply(Tensor a, Tensor b, float scale, int a_zero, int b_zero, int zero_point,"
        " int minimum, int maximum) -> Tensor"
    ),
    "widen(Tensor x, int zero_point, int multiplier, int shift) -> Tensor",
    "table(Tensor x, Tensor values) -> Tensor",
    "pad(Tensor x, int[] pads, int value) -> Tensor",
    "max_pool2d(Tensor x, int[] kernel, int[] stride, int[] pads) -> Tensor",
)
for _schema in _SCHEMAS:
    _library.define(_schema)  # type: ignore[no-untyped-call]


def _saturate(x: torch.Tensor, zero_point: int, minimum: int, maximum: int) -> torch.Tensor:
    """Rounds half to even, shifts, clamps; the clamp comes first, as in the device's code."""
    clamped = torch.clamp(x, float(minimum - zero_point), float(maximum - zero_point))
    return (torch.round(clamped) + zero_point).to(torch.int8)


def quantize(
    x: torch.Tensor, scale: float, zero_point: int, minimum: int, maximum: int
) -> torch.Tensor:
    """float32 -> int8: ``clamp(round(x / scale) + zero_point)``."""
    inverse = torch.tensor(1.0 / scale, dtype=torch.float32)
    return _saturate(x * inverse, zero_point, minimum, maximum)


def dequantize(x: torch.Tensor, scale: float, zero_point: int) -> torch.Tensor:
    """int8 -> float32."""
    return (x.to(torch.int32) - zero_point).float() * torch.tensor(scale, dtype=torch.float32)


def conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    stride: list[int],
    dilation: list[int],
) -> torch.Tensor:
    """x [N, H, W, C] int8, weight [O, KH, KW, C] int8, bias [O] int32 -> [N, OH, OW, O] int32."""
    result = F.conv2d(
        x.permute(0, 3, 1, 2).double(),
        weight.permute(0, 3, 1, 2).double(),
        bias.double(),
        stride=stride,
        dilation=dilation,
    )
    return result.permute(0, 2, 3, 1).to(torch.int32).contiguous()


def depthwise_conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    stride: list[int],
    dilation: list[int],
) -> torch.Tensor:
    """x [N, H, W, C] int8, weight [KH, KW, C, M] int8, bias [C * M] -> [N, OH, OW, C * M]."""
    height, width, channels, multiplier = weight.shape
    grouped = weight.permute(2, 3, 0, 1).reshape(channels * multiplier, 1, height, width)
    result = F.conv2d(
        x.permute(0, 3, 1, 2).double(),
        grouped.double(),
        bias.double(),
        stride=stride,
        dilation=dilation,
        groups=channels,
    )
    return result.permute(0, 2, 3, 1).to(torch.int32).contiguous()


def transpose_conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    out_pad: list[int],
    stride: list[int],
    zero_point: int,
) -> torch.Tensor:
    """x [N, H, W, C] int8, weight [O, KH, KW, C] int8, bias [O] -> int32.

    ``out_pad`` (top, bottom, left, right) is added to the full result; negative values crop it.
    """
    full = F.conv_transpose2d(
        (x.to(torch.int32) - zero_point).permute(0, 3, 1, 2).double(),
        weight.permute(3, 0, 1, 2).double(),
        None,
        stride=stride,
    )
    top, bottom, left, right = out_pad
    padded = F.pad(full, (left, right, top, bottom)) + bias.double().reshape(1, -1, 1, 1)
    return padded.permute(0, 2, 3, 1).to(torch.int32).contiguous()


def fully_connected(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x [M, K] int8, weight [K, N] int8, bias [N] int32 -> [M, N] int32."""
    return (x.double() @ weight.double() + bias.double()).to(torch.int32)


def matmul(a: torch.Tensor, b: torch.Tensor, a_zero: int, b_zero: int) -> torch.Tensor:
    """a [B, M, K] int8, b [B, K, N] int8 -> [B, M, N] int32."""
    return ((a.double() - a_zero) @ (b.double() - b_zero)).to(torch.int32)


def sum_(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """int8 -> int32 sum over ``dims``, which stay as size 1."""
    return x.sum(dims, keepdim=True, dtype=torch.int32)


def requantize(
    x: torch.Tensor,
    scale: torch.Tensor,
    offset: int,
    zero_point: int,
    minimum: int,
    maximum: int,
) -> torch.Tensor:
    """int32 -> int8: ``clamp(round((x + offset) * scale) + zero_point)``; scale by last axis."""
    return _saturate((x + offset).float() * scale, zero_point, minimum, maximum)


def rescale(
    x: torch.Tensor,
    multiplier: torch.Tensor,
    shift: torch.Tensor,
    offset: int,
    zero_point: int,
    minimum: int,
    maximum: int,
) -> torch.Tensor:
    """TOSA's RESCALE with SINGLE_ROUND: half rounds up; multiplier and shift by last axis."""
    wide = (x.to(torch.int64) + offset) * multiplier.to(torch.int64)
    amount = shift.to(torch.int64)
    rounded = (wide + (torch.ones_like(amount) << (amount - 1))) >> amount
    return (rounded + zero_point).clamp(minimum, maximum).to(torch.int8)


def accumulator_to_float(x: torch.Tensor, scale: torch.Tensor, offset: int) -> torch.Tensor:
    """int32 -> float32 by last axis."""
    return (x + offset).float() * scale


def add(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: float,
    a_zero: int,
    b_scale: float,
    b_zero: int,
    zero_point: int,
    minimum: int,
    maximum: int,
) -> torch.Tensor:
    """int8 + int8 -> int8; scales are relative to the result's."""
    first = (a.to(torch.int32) - a_zero).float() * torch.tensor(a_scale, dtype=torch.float32)
    second = (b.to(torch.int32) - b_zero).float() * torch.tensor(b_scale, dtype=torch.float32)
    return _saturate(first + second, zero_point, minimum, maximum)


def multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    scale: float,
    a_zero: int,
    b_zero: int,
    zero_point: int,
    minimum: int,
    maximum: int,
) -> torch.Tensor:
    """int8 * int8 -> int8; ``scale`` is the product of both over the result's."""
    product = (a.to(torch.int32) - a_zero) * (b.to(torch.int32) - b_zero)
    factor = torch.tensor(scale, dtype=torch.float32)
    return _saturate(product.float() * factor, zero_point, minimum, maximum)


def widen(x: torch.Tensor, zero_point: int, multiplier: int, shift: int) -> torch.Tensor:
    """int8 -> int32 by TOSA's RESCALE: ``(x - zero_point) * multiplier / 2**shift``."""
    wide = (x.to(torch.int64) - zero_point) * multiplier
    return ((wide + (1 << (shift - 1))) >> shift).to(torch.int32)


def table(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """int8 -> int8: ``values[x + 128]``."""
    return values[x.to(torch.int64) + TABLE_OFFSET]


def pad(x: torch.Tensor, pads: list[int], value: int) -> torch.Tensor:
    """``pads`` is (before, after) for each dimension, first dimension first."""
    backwards: list[int] = []
    for index in range(len(pads) - 2, -1, -2):
        backwards += pads[index : index + 2]
    return F.pad(x, backwards, value=value)


def max_pool2d(
    x: torch.Tensor, kernel: list[int], stride: list[int], pads: list[int]
) -> torch.Tensor:
    """x [N, H, W, C] int8; ``pads`` (top, bottom, left, right) are never the largest."""
    top, bottom, left, right = pads
    image = F.pad(x.permute(0, 3, 1, 2).float(), (left, right, top, bottom), value=-129.0)
    return F.max_pool2d(image, kernel, stride).permute(0, 2, 3, 1).to(torch.int8).contiguous()


_IMPLEMENTATIONS = {
    "quantize": quantize,
    "dequantize": dequantize,
    "conv2d": conv2d,
    "depthwise_conv2d": depthwise_conv2d,
    "transpose_conv2d": transpose_conv2d,
    "fully_connected": fully_connected,
    "matmul": matmul,
    "sum": sum_,
    "requantize": requantize,
    "rescale": rescale,
    "accumulator_to_float": accumulator_to_float,
    "add": add,
    "multiply": multiply,
    "widen": widen,
    "table": table,
    "pad": pad,
    "max_pool2d": max_pool2d,
}
for _name, _function in _IMPLEMENTATIONS.items():
    _library.impl(_name, _function, "CPU")  # type: ignore[no-untyped-call]
    # Fake tensors run the same code: every step of it knows its shapes.
    _library.impl(_name, _function, "Meta")  # type: ignore[no-untyped-call]
