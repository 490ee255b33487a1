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
        elif node.target is aten.adaptive_max_pool2d.default:
            count += _adaptive_max_pool(module, node)
    return count


def _pair(value: Any) -> list[int]:
    items = [value] if isinstance(value, int) else list(value)
    return items * 2 if len(items) == 1 else items


def _avg_pool(node: fx.Node) -> int:
    arguments: list[Any] = list(node.args) + [None] * (7 - len(node.args))
    x, kernel, stride, padding, ceil_mode, count_padding, divisor = arguments
    if divisor is None:
        return 0
    del count_padding  # a given divisor divides whatever was summed
    k, p = _pair(kernel), _pair(padding or 0)
    s = _pair(stride or k)
    sizes, outs = x.meta["val"].shape[-2:], node.meta["val"].shape[-2:]
    after = [
        max((out - 1) * st + kk - size - pp, 0) if ceil_mode else pp
        for out, st, kk, size, pp in zip(outs, s, k, sizes, p, strict=True)
    ]
    if any(p) or any(after):  # with zeros of our own every window is whole
        x = emit(node, aten.constant_pad_nd.default, x, [p[1], after[1], p[0], after[0]], 0.0)
    plain = emit(node, aten.avg_pool2d.default, x, k, s)
    replace(node, emit(node, aten.mul.Tensor, plain, math.prod(k) / divisor))
    return 1


def _adaptive_max_pool(module: fx.GraphModule, node: fx.Node) -> int:
    """Every bin gathered to the size of the largest one (its last element again and again)."""
    x: Any = node.args[0]
    shape, outs = x.meta["val"].shape, node.meta["val"][0].shape[-2:]
    if not all(isinstance(size, int) for size in shape):
        return 0
    rows, columns = (_bins(n, out) for n, out in zip(shape[-2:], outs, strict=True))
    places = rows[:, None, :, None] * shape[-1] + columns[None, :, None, :]
    places = places.reshape(len(rows) * len(columns), -1)
    lead = list(shape[:-2])
    flat = emit(node, aten.view.default, x, [*lead, shape[-2] * shape[-1]])
    index = new_constant(module, f"{node.name}_bins", places.reshape(-1), node)
    picked = emit(node, aten.index_select.default, flat, len(lead), index)
    bins = emit(node, aten.view.default, picked, [*lead, *places.shape])
    users = {u.args[1]: u for u in node.users if u.target is operator.getitem}
    whole = [*lead, *outs]
    if 0 in users:
        values = emit(node, aten.amax.default, bins, [-1])
        users[0].replace_all_uses_with(emit(node, aten.view.default, values, whole))
    if 1 in users:
        best = emit(node, aten.argmax.default, bins, -1, True)
        order = new_constant(module, f"{node.name}_order", torch.arange(places.shape[1]), node)
        table = new_constant(module, f"{node.name}_table", places, node)
        hit = emit(node, aten.eq.Tensor, best, order)
        zero = new_constant(module, f"{node.name}_zero", torch.zeros_like(places), node)
        index = emit(
            node, aten.sum.dim_IntList, emit(node, aten.where.self, hit, table, zero), [-1]
        )
        users[1].replace_all_uses_with(emit(node, aten.view.default, index, whole))
    return 1


def _bins(n: int, out: int) -> torch.Tensor:
    """Row ``i`` holds the places that adaptive pooling puts into bin ``i``."""
    starts = [i * n // out for i in range(out)]
    ends = [-(-(i + 1) * n // out) for i in range(out)]
    most = max(e - s for s, e in zip(starts, ends, strict=True))
    rows = [[min(s + j, e - 1) for j in range(most)] for s, e in zip(starts, ends, strict=True)]
    return torch.tensor(rows)


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
