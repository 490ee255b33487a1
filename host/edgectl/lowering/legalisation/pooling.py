"""Pools that TOSA has no words for: dilation, returned indices, another divisor.

A pool over a window is a maximum over its shifted, strided slices; the indices follow from
comparing each slice with the maximum so far, first one wins as in PyTorch.
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import torch
from torch import fx

from edgectl.graph import new_constant
from edgectl.lowering.legalisation.emit import emit, replace

__all__ = ["rewrite_pools"]

aten = torch.ops.aten


def rewrite_pools(module: fx.GraphModule) -> int:
    """Rewrites each such pool in place."""
    count = 0
    for node in list(module.graph.nodes):
        if node.target is aten.max_pool2d_with_indices.default:
            count += _max_pool(module, node)
        elif node.target is aten.avg_pool2d.default:
            count += _avg_pool(node)
    return count


def _pair(value: Any) -> list[int]:
    items = [value] if isinstance(value, int) else list(value)
    return items * 2 if len(items) == 1 else items


def _avg_pool(node: fx.Node) -> int:
    arguments: list[Any] = list(node.args) + [None] * (7 - len(node.args))
    x, kernel, stride, padding, ceil_mode, count_padding, divisor = arguments
    if divisor is None:
        return 0
    k = _pair(kernel)
    plain = emit(
        node,
        aten.avg_pool2d.default,
        x,
        k,
        _pair(stride or k),
        _pair(padding or 0),
        bool(ceil_mode),
        True,
    )
    del count_padding  # a given divisor divides whatever was summed
    replace(node, emit(node, aten.mul.Tensor, plain, math.prod(k) / divisor))
    return 1


def _max_pool(module: fx.GraphModule, node: fx.Node) -> int:
    arguments: list[Any] = list(node.args) + [None] * (6 - len(node.args))
    x, kernel, stride, padding, dilation, ceil_mode = arguments
    k = _pair(kernel)
    s, p, d = _pair(stride or k), _pair(padding or 0), _pair(dilation or 1)
    users = {u.args[1]: u for u in node.users if u.target is operator.getitem}
    wants_indices = 1 in users and bool(users[1].users)
    if not wants_indices and d == [1, 1]:
        pooled = emit(node, aten.max_pool2d.default, x, k, s, p, d, bool(ceil_mode))
        if 0 in users:
            users[0].replace_all_uses_with(pooled)
        return 1
    value = x.meta["val"]
    if not value.dtype.is_floating_point or not all(isinstance(n, int) for n in value.shape):
        return 0
    (height, width), out = value.shape[-2:], node.meta["val"][0].shape[-2:]
    reach = [(o - 1) * st + (kk - 1) * dd + 1 for o, st, kk, dd in zip(out, s, k, d, strict=True)]
    after = [max(r - n - pp, 0) for r, n, pp in zip(reach, (height, width), p, strict=True)]
    lowest = float(torch.finfo(value.dtype).min)
    padded = emit(node, aten.constant_pad_nd.default, x, [p[1], after[1], p[0], after[0]], lowest)
    best, index = None, None
    for i, j in itertools.product(range(k[0]), range(k[1])):
        window = padded
        for axis, start, o, st in ((-2, i * d[0], out[0], s[0]), (-1, j * d[1], out[1], s[1])):
            dim = value.dim() + axis
            window = emit(node, aten.slice.Tensor, window, dim, start, start + (o - 1) * st + 1, st)
        place = _place(module, node, (i * d[0] - p[0], j * d[1] - p[1]), out, s, width)
        if best is None:
            best, index = window, place
        else:
            better = emit(node, aten.gt.Tensor, window, best)
            best = emit(node, aten.maximum.default, best, window)
            index = emit(node, aten.where.self, better, place, index) if wants_indices else place
    if 0 in users and best is not None:
        users[0].replace_all_uses_with(best)
    if wants_indices and index is not None:
        whole = emit(node, aten.expand.default, index, list(node.meta["val"][1].shape))
        users[1].replace_all_uses_with(whole)
    return 1


def _place(
    module: fx.GraphModule,
    node: fx.Node,
    offset: tuple[int, int],
    out: Any,
    s: list[int],
    width: int,
) -> fx.Node:
    """Flat input position that each output element would take from this place of the window."""
    rows = torch.arange(out[0]) * s[0] + offset[0]
    columns = torch.arange(out[1]) * s[1] + offset[1]
    return new_constant(module, f"{node.name}_place", rows[:, None] * width + columns[None], node)
