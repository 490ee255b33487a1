"""Convolutions on int8, channels-last.

A one-dimensional convolution is a picture of height one. A grouped convolution that is not
depthwise is cut into its groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from edgectl.graph import constant_of
from edgectl.lowering.integer.builder import Builder, Ending, zero_fold
from edgectl.lowering.integer.pairs import Int8Value, Int8Weight, int8_of, weight_of

__all__ = ["fold_convolution", "fold_transposed"]

edge = torch.ops.edgectl
aten = torch.ops.aten

TO_LAST, TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int


def _two(value: Any, fill: int, rank: int) -> list[int]:
    """A PyTorch size argument as [height, width]; one-dimensional layers get ``fill`` first."""
    values = [int(v) for v in value] if isinstance(value, list | tuple) else [int(value)]
    if rank == 3:
        return [fill, values[0]]
    return values * 2 if len(values) == 1 else values


def _bias(builder: Builder, node: fx.Node) -> tuple[bool, torch.Tensor | None]:
    argument = node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")
    if argument is None:
        return True, None
    bias = constant_of(builder.module, argument)
    if bias is None:
        weight = weight_of(builder.module, argument)  # some flows quantize the bias too
        if weight is not None and weight.axis is None:
            bias = weight.values.float() * weight.scales
    return bias is not None, bias


def _image(builder: Builder, value: Int8Value, rank: int) -> fx.Node:
    """The int8 input as [N, H, W, C]."""
    node = value.node
    if rank == 3:
        n, channels, length = (int(s) for s in node.meta["val"].shape)
        node = builder.call(aten.reshape.default, node, [n, channels, 1, length])
    return builder.permute(node, TO_LAST)


def _back(builder: Builder, rank: int) -> Any:
    def move(node: fx.Node) -> fx.Node:
        node = builder.permute(node, TO_FIRST)
        if rank == 4:
            return node
        n, channels, _, length = (int(s) for s in node.meta["val"].shape)
        return builder.call(aten.reshape.default, node, [n, channels, length])

    return move


def _operands(
    builder: Builder, node: fx.Node, output_axis: int
) -> tuple[Int8Value, Int8Weight, torch.Tensor | None] | None:
    value = int8_of(builder.module, node.args[0])
    weight = weight_of(builder.module, node.args[1])
    known, bias = _bias(builder, node)
    if value is None or weight is None or not weight.zero or not known:
        return None
    if weight.axis not in (None, output_axis):
        return None
    if node.args[0].meta["val"].dim() not in (3, 4):  # type: ignore[union-attr]
        return None
    return value, weight, bias


def fold_convolution(builder: Builder, node: fx.Node) -> bool:
    """``conv1d`` and ``conv2d``; False when it stays float."""
    operands = _operands(builder, node, 0)
    if operands is None:
        return False
    value, weight, bias = operands
    rank = weight.values.dim()
    args: list[Any] = [*node.args, *[None, None, None, 1, 0, 1, 1][len(node.args) :]]
    window = _Window(
        stride=_two(args[3], 1, rank),
        padding=_two(args[4], 0, rank),
        dilation=_two(args[5], 1, rank),
        groups=int(args[6]),
    )
    kernel = weight.values if rank == 4 else weight.values.unsqueeze(2)
    total = zero_fold(kernel.sum((1, 2, 3), dtype=torch.int64), bias, weight.scales, value)
    if total is None:
        return False
    image = _image(builder, value, rank)
    high, wide = window.padding
    if high or wide:
        pads = [0, 0, high, high, wide, wide, 0, 0]
        image = builder.call(edge.pad.default, image, pads, value.zero_point)
    accumulator = _convolve(builder, image, kernel, total, window, weight.name)
    builder.finish(
        Ending(builder.module, node),
        accumulator,
        weight.scales.double() * value.scale,
        after=_back(builder, rank),
    )
    return True


def _convolve(
    builder: Builder,
    image: fx.Node,
    kernel: torch.Tensor,
    bias: torch.Tensor,
    window: _Window,
    name: str,
) -> fx.Node:
    outputs, depth = kernel.shape[0], kernel.shape[1]
    geometry = (window.stride, window.dilation)
    if window.groups == 1:
        return builder.call(
            edge.conv2d.default,
            image,
            builder.constant(name, kernel.permute(0, 2, 3, 1)),
            builder.constant(f"{name}_bias", bias),
            *geometry,
        )
    if depth == 1:
        multiplier = outputs // window.groups
        grouped = kernel.reshape(window.groups, multiplier, *kernel.shape[2:]).permute(2, 3, 0, 1)
        return builder.call(
            edge.depthwise_conv2d.default,
            image,
            builder.constant(name, grouped),
            builder.constant(f"{name}_bias", bias),
            *geometry,
        )
    each = outputs // window.groups
    parts = []
    for group in range(window.groups):
        rows = slice(group * each, (group + 1) * each)
        part = builder.call(aten.slice.Tensor, image, 3, group * depth, (group + 1) * depth)
        parts.append(
            builder.call(
                edge.conv2d.default,
                part,
                builder.constant(name, kernel[rows].permute(0, 2, 3, 1)),
                builder.constant(f"{name}_bias", bias[rows]),
                *geometry,
            )
        )
    return builder.call(aten.cat.default, parts, 3)


def fold_transposed(builder: Builder, node: fx.Node) -> bool:
    """``conv_transpose1d`` and ``conv_transpose2d`` without groups and dilation.

    The border sees fewer inputs than the middle, so the zero point cannot go into the bias here;
    the operator subtracts it from the input.
    """
    operands = _operands(builder, node, 1)
    if operands is None:
        return False
    value, weight, bias = operands
    rank = weight.values.dim()
    args: list[Any] = [*node.args, *[None, None, None, 1, 0, 0, 1, 1][len(node.args) :]]
    stride, padding = _two(args[3], 1, rank), _two(args[4], 0, rank)
    extra = _two(args[5], 0, rank)
    kernel = weight.values if rank == 4 else weight.values.unsqueeze(2)
    zeros = torch.zeros(kernel.shape[1], dtype=torch.int64)
    total = zero_fold(zeros, bias, weight.scales, value)
    if total is None:
        return False
    image = _image(builder, value, rank)
    out_pad = [-padding[0], extra[0] - padding[0], -padding[1], extra[1] - padding[1]]
    accumulator = builder.call(
        edge.transpose_conv2d.default,
        image,
        builder.constant(weight.name, kernel.permute(1, 2, 3, 0)),
        builder.constant(f"{weight.name}_bias", total),
        out_pad,
        stride,
        value.zero_point,
    )
    builder.finish(
        Ending(builder.module, node),
        accumulator,
        weight.scales.double() * value.scale,
        after=_back(builder, rank),
    )
    return True
