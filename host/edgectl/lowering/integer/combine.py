"""Two int8 values (or several, joined) that do not have the same scale."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgectl.lowering.integer.builder import Builder, Ending
from edgectl.lowering.integer.pairs import Int8Value, int8_of
from edgectl.lowering.integer.rounding import fixed_point
from edgectl.lowering.integer.tables import rescaling_table

__all__ = ["fold_combine", "fold_join", "matched"]

edge = torch.ops.edgectl
aten = torch.ops.aten


def fold_combine(builder: Builder, node: fx.Node) -> bool:
    """``add``, ``sub`` and ``mul`` of two int8 values with an int8 result."""
    first, second = (int8_of(builder.module, a) for a in node.args[:2])
    ending = Ending(builder.module, node)
    if first is None or second is None or ending.quantized is None:
        return False
    to = ending.quantized
    low, high = ending.limits()
    if builder.exact_rounding:
        _combine_exactly(builder, node, first, second, ending)
        return True
    if node.target is aten.mul.Tensor:
        result = builder.call(
            edge.multiply.default,
            first.node,
            second.node,
            first.scale * second.scale / to.scale,
            first.zero_point,
            second.zero_point,
            to.zero_point,
            low,
            high,
        )
    else:
        sign = -1.0 if node.target is aten.sub.Tensor else 1.0
        result = builder.call(
            edge.add.default,
            first.node,
            second.node,
            first.scale / to.scale,
            first.zero_point,
            sign * second.scale / to.scale,
            second.zero_point,
            to.zero_point,
            low,
            high,
        )
    builder.replace_quantized(ending, result)
    return True


# Bits by which both addends are widened before they meet, so that rounding them costs nothing.
_HEADROOM = 20


def _combine_exactly(
    builder: Builder, node: fx.Node, first: Int8Value, second: Int8Value, ending: Ending
) -> None:
    """The same with TOSA's own rescaling: widen both, combine in int32, scale down."""
    if ending.quantized is None:
        return
    to = ending.quantized
    multiply = node.target is aten.mul.Tensor
    if multiply:
        a = builder.call(edge.widen.default, first.node, first.zero_point, 1 << 30, 30)
        b = builder.call(edge.widen.default, second.node, second.zero_point, 1 << 30, 30)
        total = builder.call(aten.mul.Tensor, a, b)
        factor = first.scale * second.scale / to.scale
    else:
        largest = 2 * max(first.scale, second.scale)
        parts = []
        for value in (first, second):
            exact = torch.tensor([value.scale / largest * (1 << _HEADROOM)], dtype=torch.float64)
            multiplier, shift = fixed_point(exact)
            parts.append(
                builder.call(
                    edge.widen.default,
                    value.node,
                    value.zero_point,
                    int(multiplier),
                    int(shift),
                )
            )
        total = builder.call(
            aten.sub.Tensor if node.target is aten.sub.Tensor else aten.add.Tensor, *parts
        )
        factor = largest / (1 << _HEADROOM) / to.scale
    low, high = ending.limits()
    multiplier, shift = fixed_point(torch.tensor([factor], dtype=torch.float64))
    result = builder.call(
        edge.rescale.default,
        total,
        builder.constant("multiplier", multiplier),
        builder.constant("shift", shift),
        0,
        to.zero_point,
        low,
        high,
    )
    builder.replace_quantized(ending, result)


def matched(builder: Builder, value: Int8Value, to: Int8Value) -> fx.Node:
    """``value`` with the scale and zero point of ``to``: itself, or looked up in a table."""
    if (value.scale, value.zero_point) == (to.scale, to.zero_point):
        return value.node
    table = builder.constant("rescaling_table", rescaling_table(value, to))
    return builder.call(edge.table.default, value.node, table)


def fold_join(builder: Builder, node: fx.Node) -> bool:
    """``cat``: every input is brought to the scale of the result first."""
    parts: Any = node.args[0]
    values = [int8_of(builder.module, part) for part in parts]
    ending = Ending(builder.module, node)
    if ending.quantized is None or ending.result is not node:
        return False
    known = [v for v in values if v is not None]
    if len(known) != len(values):
        return False
    joined = [matched(builder, v, ending.quantized) for v in known]
    result = builder.call(aten.cat.default, joined, *node.args[1:])
    builder.replace_quantized(ending, result)
    return True
