"""Operators of one int8 value: moves, tables, means, and rows of a constant."""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import torch
from torch import fx

from edgectl.graph.constants import whole
from edgectl.lowering.integer.builder import Builder, Ending
from edgectl.lowering.integer.combine import matched
from edgectl.lowering.integer.pairs import int8_of
from edgectl.lowering.integer.tables import function_table
from edgectl.quantization.operators import is_clamp

__all__ = ["fold_average", "fold_gather", "fold_move", "fold_table"]

edge = torch.ops.edgectl
aten = torch.ops.aten

_RESHAPES = (
    aten.view.default,
    aten._unsafe_view.default,  # noqa: SLF001
    aten.reshape.default,
    aten.flatten.using_ints,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
)
_SEVERAL = (
    aten.unbind.int,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.chunk.default,
)


def fold_table(builder: Builder, node: fx.Node) -> bool:
    """A function of one value."""
    value = int8_of(builder.module, node.args[0])
    ending = Ending(builder.module, node)
    if value is None or ending.quantized is None:
        return False

    def function(x: torch.Tensor) -> torch.Tensor:
        current: fx.Node = node
        result: torch.Tensor = x
        while True:
            target: Any = current.target
            result = target(result, *current.args[1:], **current.kwargs)
            if current is ending.result:
                return result
            (current,) = current.users

    answers = function_table(function, value, ending.quantized)
    table = builder.constant(f"{node.name}_table", answers)
    builder.replace_quantized(ending, builder.call(edge.table.default, value.node, table))
    return True


def fold_move(builder: Builder, node: fx.Node) -> bool:
    """Values change place: the same operator on integers."""
    if node.target is operator.getitem:
        return False  # done with the operator that it takes from
    value = int8_of(builder.module, node.args[0])
    if value is None:
        return False
    if node.target in _SEVERAL:
        return _fold_several(builder, node)
    ending = Ending(builder.module, node)
    if ending.quantized is None:
        return False
    source = value.node
    same = (value.scale, value.zero_point) == (ending.quantized.scale, ending.quantized.zero_point)
    if node.target in (aten.max_pool2d.default, aten.max_pool1d.default):
        moved = _max_pool(builder, node, source)
    elif node.target in (aten.constant_pad_nd.default, aten.pad.default):
        moved = _pad(builder, node, source, value.scale, value.zero_point)
    elif node.target is aten.clone.default:
        moved = source
    elif node.target in _RESHAPES:
        # Integers may lie in another order than the floats did; a reshape does not mind.
        shape = [int(s) for s in node.meta["val"].shape]
        moved = builder.call(aten.reshape.default, source, shape)
    else:
        moved = builder.call(node.target, source, *node.args[1:])
    if moved is None:
        return False
    if not same or ending.result is not node:
        return _finish_with_table(builder, node, ending, value, moved)
    builder.replace_quantized(ending, moved)
    return True


def _finish_with_table(
    builder: Builder, node: fx.Node, ending: Ending, value: Any, moved: fx.Node
) -> bool:
    """Clamps and a change of scale after a move, in one table."""
    if ending.quantized is None:
        return False
    chain = []
    current = ending.result
    while current is not node:
        if not is_clamp(current):
            return False
        chain.append(current)
        current = current.args[0]  # type: ignore[assignment]

    def function(x: torch.Tensor) -> torch.Tensor:
        for clamp in reversed(chain):
            target: Any = clamp.target
            x = target(x, *clamp.args[1:], **clamp.kwargs)
        return x

    answers = function_table(function, value, ending.quantized)
    table = builder.constant(f"{node.name}_table", answers)
    builder.replace_quantized(ending, builder.call(edge.table.default, moved, table))
    return True


def _fold_several(builder: Builder, node: fx.Node) -> bool:
    """``unbind``, ``split``, ``chunk``: each part is a slice or a select of its own."""
    value = int8_of(builder.module, node.args[0])
    if value is None or any(u.target is not operator.getitem for u in node.users):
        return False
    parts: Any = node.meta["val"]
    place = 1 if node.target is aten.unbind.int else 2
    dim = whole(node.args[place]) if len(node.args) > place else 0
    start = 0
    starts = []
    for part in parts:
        starts.append(start)
        start += 1 if node.target is aten.unbind.int else int(part.shape[dim])
    for user in list(node.users):
        ending = Ending(builder.module, user)
        if ending.quantized is None or ending.result is not user:
            continue
        index = whole(user.args[1])
        if node.target is aten.unbind.int:
            part = builder.call(aten.select.int, value.node, dim, starts[index])
        else:
            end = starts[index] + int(parts[index].shape[dim])
            part = builder.call(aten.slice.Tensor, value.node, dim, starts[index], end)
        to = ending.quantized
        if (value.scale, value.zero_point) != (to.scale, to.zero_point):
            table = function_table(lambda x: x, value, to)
            part = builder.call(edge.table.default, part, builder.constant("table", table))
        builder.replace_quantized(ending, part)
    return True


def _pair(value: Any, default: list[int]) -> list[int]:
    values = [int(v) for v in value] if isinstance(value, list | tuple) else [int(value)]
    if not values:
        return default
    return values * 2 if len(values) == 1 else values


def _max_pool(builder: Builder, node: fx.Node, source: fx.Node) -> fx.Node | None:
    one_d = node.target is aten.max_pool1d.default
    args: list[Any] = [*node.args, *[None, None, [], 0, 1, False][len(node.args) :]]
    if one_d:
        kernel, padding = [1, _pair(args[1], [])[0]], [0, _pair(args[3], [0])[0]]
        stride = [1, _pair(args[2], [kernel[1]])[0]]
        dilation = _pair(args[4], [1])
    else:
        kernel, padding = _pair(args[1], []), _pair(args[3], [0, 0])
        stride, dilation = _pair(args[2], kernel), _pair(args[4], [1, 1])
    shape = [int(s) for s in node.args[0].meta["val"].shape]  # type: ignore[union-attr]
    if any(d != 1 for d in dilation) or len(shape) != (3 if one_d else 4):
        return None
    if one_d:
        source = builder.call(aten.reshape.default, source, [*shape[:2], 1, shape[2]])
        shape = [shape[0], shape[1], 1, shape[2]]
    pooled_shape = [int(s) for s in node.meta["val"].shape]
    out = [1, pooled_shape[-1]] if one_d else pooled_shape[-2:]
    image = builder.permute(source, [0, 2, 3, 1])
    pads: list[int] = []
    for axis in range(2):
        # What the last window needs beyond the data; less than none means rows nobody reads.
        size, before = shape[2 + axis], padding[axis]
        after = (out[axis] - 1) * stride[axis] + kernel[axis] - size - before
        if after < 0:
            image = builder.call(aten.slice.Tensor, image, 1 + axis, 0, size + after)
            after = 0
        pads += [before, after]
    pooled = builder.call(edge.max_pool2d.default, image, kernel, stride, pads)
    result = builder.permute(pooled, [0, 3, 1, 2])
    return builder.call(aten.reshape.default, result, pooled_shape) if one_d else result


def _pad(
    builder: Builder, node: fx.Node, source: fx.Node, scale: float, zero_point: int
) -> fx.Node | None:
    amounts: Any = node.args[1]
    at = 2 if node.target is aten.constant_pad_nd.default else 3
    fill = float(node.args[at] or 0.0) if len(node.args) > at else 0.0  # type: ignore[arg-type]
    rank = node.meta["val"].dim()
    if any(int(a) < 0 for a in amounts):
        return None
    pads = [0] * (2 * rank)
    for index in range(len(amounts) // 2):
        place = 2 * (rank - 1 - index)
        pads[place : place + 2] = [int(a) for a in amounts[2 * index : 2 * index + 2]]
    if fill in (float("inf"), float("-inf")):
        stored = 127 if fill > 0 else -128
    else:
        stored = max(-128, min(127, round(fill / scale) + zero_point))
    return builder.call(edge.pad.default, source, pads, stored)


def fold_average(builder: Builder, node: fx.Node) -> bool:
    """Average pooling as a depthwise convolution with ones; a mean as a sum. Both in int32."""
    value = int8_of(builder.module, node.args[0])
    if value is None:
        return False
    shape = [int(s) for s in node.args[0].meta["val"].shape]  # type: ignore[union-attr]
    if node.target is aten.mean.dim:
        axes: Any = node.args[1]
        dims = [whole(d) % len(shape) for d in axes]
        keep = bool(node.args[2]) if len(node.args) > 2 else False
        count = prod(shape[d] for d in dims)
        mean_shape = [int(s) for s in node.meta["val"].shape]
        total = builder.call(edge.sum.default, value.node, dims)

        def after(result: fx.Node) -> fx.Node:
            return result if keep else builder.call(aten.reshape.default, result, mean_shape)

        scales = torch.tensor([value.scale / count], dtype=torch.float64)
        builder.finish(
            Ending(builder.module, node),
            total,
            scales,
            offset=-value.zero_point * count,
            after=after,
        )
        return True
    if len(shape) != 4:
        return False
    args: list[Any] = [*node.args, *[None, None, [], 0][len(node.args) :]]
    kernel, padding = _pair(args[1], []), _pair(args[3], [0, 0])
    stride = _pair(args[2], kernel)
    channels = shape[1]
    image = builder.permute(value.node, [0, 2, 3, 1])
    if any(padding):
        pads = [0, 0, padding[0], padding[0], padding[1], padding[1], 0, 0]
        image = builder.call(edge.pad.default, image, pads, value.zero_point)
    area = kernel[0] * kernel[1]
    ones = torch.ones(kernel[0], kernel[1], channels, 1, dtype=torch.int8)
    bias = torch.full((channels,), -value.zero_point * area, dtype=torch.int32)
    total = builder.call(
        edge.depthwise_conv2d.default,
        image,
        builder.constant("ones", ones),
        builder.constant("ones_bias", bias),
        stride,
        [1, 1],
    )
    builder.finish(
        Ending(builder.module, node),
        total,
        torch.tensor([value.scale / area], dtype=torch.float64),
        after=lambda result: builder.permute(result, [0, 3, 1, 2]),
    )
    return True


def fold_gather(builder: Builder, node: fx.Node) -> bool:
    """``embedding`` of an int8 table; what reads it dequantizes the rows."""
    value = int8_of(builder.module, node.args[0])
    if value is None:
        return False
    rows = builder.call(aten.embedding.default, value.node, node.args[1])
    ending = Ending(builder.module, node)
    if ending.quantized is not None:
        rows_value = type(value)(
            node=rows,
            scale=value.scale,
            zero_point=value.zero_point,
            minimum=value.minimum,
            maximum=value.maximum,
        )
        builder.replace_quantized(ending, matched(builder, rows_value, ending.quantized))
        return True
    node.replace_all_uses_with(
        builder.call(edge.dequantize.default, rows, value.scale, value.zero_point)
    )
    return True
