"""Powers of negative numbers, which TOSA's power has not: the sign and the not-a-number."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from edgectl.lowering.legalisation.emit import emit, replace

__all__ = ["rewrite_powers"]

aten = torch.ops.aten


def rewrite_powers(module: fx.GraphModule) -> int:
    """``x ** y`` of real tensors as a power of ``|x|``, in place; returns how many."""
    count = 0
    for node in list(module.graph.nodes):
        if node.target not in (aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar):
            continue
        x, y = node.args[:2]
        if not isinstance(x, fx.Node) or not node.meta["val"].dtype.is_floating_point:
            continue
        if not x.meta["val"].dtype.is_floating_point:
            continue
        if isinstance(y, fx.Node) and not y.meta["val"].dtype.is_floating_point:
            y = emit(node, aten._to_copy.default, y, dtype=x.meta["val"].dtype)  # noqa: SLF001
        replace(node, _signed(node, x, y))
        count += 1
    return count


def _signed(node: fx.Node, x: fx.Node, y: Any) -> fx.Node:
    size = emit(node, node.target, emit(node, aten.abs.default, x), y)
    below = emit(node, aten.lt.Scalar, x, 0.0)
    if isinstance(y, fx.Node):
        halved = emit(node, aten.floor.default, emit(node, aten.mul.Tensor, y, 0.5))
        rest = emit(node, aten.sub.Tensor, y, emit(node, aten.mul.Tensor, halved, 2.0))
        odd = emit(node, aten.eq.Scalar, rest, 1.0)
        whole = emit(node, aten.eq.Tensor, emit(node, aten.floor.default, y), y)
        nothing = emit(node, aten.full_like.default, size, math.nan)
        negative = emit(node, aten.where.self, whole, size, nothing)
        negative = emit(node, aten.where.self, odd, emit(node, aten.neg.default, size), negative)
        return emit(node, aten.where.self, below, negative, size)
    if y != int(y):
        nothing = emit(node, aten.full_like.default, size, math.nan)
        return emit(node, aten.where.self, below, nothing, size)
    if y % 2 == 0:
        return size
    return emit(node, aten.where.self, below, emit(node, aten.neg.default, size), size)
