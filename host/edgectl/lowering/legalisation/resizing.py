"""Resizing and adaptive pooling, one axis at a time.

They are linear maps along each spatial axis, and a linear map is known by what it does to unit
vectors: eager PyTorch itself gives the matrix, with its phase, its clamping at borders and its
rounding of sizes. The map is then a matrix product with a constant; nearest is a broadcast,
a strided slice or a constant gather.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from edgectl.graph import new_constant
from edgectl.lowering.legalisation.emit import emit, replace

__all__ = ["rewrite_resizes"]

aten = torch.ops.aten
Axis = Callable[[int, int, float | None], torch.Tensor]


def rewrite_resizes(module: fx.GraphModule) -> int:
    """Rewrites every resize and adaptive pool of fixed shape, in place."""
    count = 0
    for node in list(module.graph.nodes):
        rule = _RULES.get(node.target) if node.op == "call_function" else None
        x = node.args[0] if rule is not None else None
        if rule is None or not isinstance(x, fx.Node):
            continue
        if not all(
            isinstance(size, int) for size in (*x.meta["val"].shape, *node.meta["val"].shape)
        ):
            continue
        new = rule(module, node, x)
        replace(node, new)
        count += 1
    return count


def _factors(node: fx.Node, position: int, axes: int) -> Sequence[float | None]:
    given: Any = (
        node.args[position] if len(node.args) > position else node.kwargs.get("scale_factors")
    )
    return [None] * axes if given is None else list(given)


def _axis_matrix(size: int, resize: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    units = torch.eye(size).reshape(size, 1, size)
    return resize(units).reshape(size, -1).t().contiguous()


def _linear(n: int, out: int, corners: bool, factor: float | None) -> torch.Tensor:
    return _axis_matrix(n, lambda u: aten.upsample_linear1d.default(u, [out], corners, factor))


def _cubic(n: int, out: int, corners: bool, factor: float | None) -> torch.Tensor:
    def resize(units: torch.Tensor) -> torch.Tensor:
        tall = units.reshape(n, 1, n, 1)
        wide: torch.Tensor = aten.upsample_bicubic2d.default(tall, [out, 1], corners, factor, None)
        return wide

    return _axis_matrix(n, resize)


def _antialiased(operator: Any) -> Callable[[int, int, bool, float | None], torch.Tensor]:
    def kernel(n: int, out: int, corners: bool, factor: float | None) -> torch.Tensor:
        def resize(units: torch.Tensor) -> torch.Tensor:
            tall = units.reshape(n, 1, n, 1).expand(n, 1, n, 4).contiguous()
            wide: torch.Tensor = operator(tall, [out, 4], corners, factor, None)
            return wide[..., 0]

        return _axis_matrix(n, resize)

    return kernel


def _average(n: int, out: int) -> torch.Tensor:
    return _axis_matrix(n, lambda u: F.adaptive_avg_pool1d(u, out))


def _resize(axes: int, kernel: Callable[[int, int, bool, float | None], torch.Tensor]) -> Any:
    def rule(module: fx.GraphModule, node: fx.Node, x: fx.Node) -> fx.Node:
        corners, factors = bool(node.args[2]), _factors(node, 3, axes)
        inner, outs = x.meta["val"].shape[-axes:], node.meta["val"].shape[-axes:]
        matrices = [
            kernel(n, out, corners, factor)
            for n, out, factor in zip(inner, outs, factors, strict=True)
        ]
        return _products(module, node, x, matrices)

    return rule


def _adaptive(axes: int) -> Any:
    def rule(module: fx.GraphModule, node: fx.Node, x: fx.Node) -> fx.Node:
        inner, outs = x.meta["val"].shape[-axes:], node.meta["val"].shape[-axes:]
        rank = x.meta["val"].dim()
        if all(out == 1 for out in outs):
            return emit(node, aten.mean.dim, x, list(range(rank - axes, rank)), True)
        if (
            axes == 2
            and rank == 4
            and all(n % out == 0 for n, out in zip(inner, outs, strict=True))
        ):
            kernel = [n // out for n, out in zip(inner, outs, strict=True)]
            return emit(node, aten.avg_pool2d.default, x, kernel, kernel)
        matrices = [_average(n, out) for n, out in zip(inner, outs, strict=True)]
        return _products(module, node, x, matrices)

    return rule


def _products(
    module: fx.GraphModule, node: fx.Node, x: fx.Node, matrices: list[torch.Tensor]
) -> fx.Node:
    """One product per axis; the axis that shrinks most goes first."""
    rank = x.meta["val"].dim()
    pairs = list(enumerate(matrices, rank - len(matrices)))
    for axis, matrix in sorted(pairs, key=lambda p: p[1].shape[0] / p[1].shape[1]):
        if matrix.shape[0] == matrix.shape[1] and torch.equal(matrix, torch.eye(matrix.shape[0])):
            continue
        weight = new_constant(module, f"{node.name}_axis", matrix.t().to(x.meta["val"].dtype), node)
        order = [*(d for d in range(rank) if d != axis), axis]
        moved = x if axis == rank - 1 else emit(node, aten.permute.default, x, order)
        shape = list(moved.meta["val"].shape)
        flat = [math.prod(shape[:-1]), shape[-1]]
        rows = emit(node, aten.view.default, _dense(node, moved), flat)
        product = emit(node, aten.mm.default, rows, weight)
        x = emit(node, aten.view.default, product, [*shape[:-1], matrix.shape[0]])
        if axis != rank - 1:
            x = emit(node, aten.permute.default, x, [order.index(d) for d in range(rank)])
    return x


def _dense(node: fx.Node, x: fx.Node) -> fx.Node:
    """A view needs its elements in order, also where only the fake tensor checks it."""
    return emit(node, aten.clone.default, x, memory_format=torch.contiguous_format)


def _nearest(axes: int, *, exact: bool) -> Any:
    operator = aten._upsample_nearest_exact1d.default if exact else aten.upsample_nearest1d.default  # noqa: SLF001

    def rule(module: fx.GraphModule, node: fx.Node, x: fx.Node) -> fx.Node:
        factors, rank = _factors(node, 2, axes), x.meta["val"].dim()
        outs = node.meta["val"].shape[-axes:]
        for axis, (out, factor) in enumerate(zip(outs, factors, strict=True), rank - axes):
            n = x.meta["val"].shape[axis]
            places = torch.arange(n, dtype=torch.float32).reshape(1, 1, n)
            index = operator(places, [out], factor).reshape(-1).to(torch.int64)
            x = _pick(module, node, x, axis, index)
        return x

    return rule


def _pick(
    module: fx.GraphModule, node: fx.Node, x: fx.Node, axis: int, index: torch.Tensor
) -> fx.Node:
    shape, out = list(x.meta["val"].shape), len(index)
    n = shape[axis]
    if out == n and torch.equal(index, torch.arange(n)):
        return x
    if out % n == 0 and torch.equal(index, torch.arange(n).repeat_interleave(out // n)):
        # A broadcast and a reshape instead of a gather.
        wide = [*shape[: axis + 1], out // n, *shape[axis + 1 :]]
        tall = emit(node, aten.unsqueeze.default, x, axis + 1)
        copies = emit(node, aten.expand.default, tall, wide)
        merged = [*shape[:axis], out, *shape[axis + 1 :]]
        return emit(node, aten.view.default, _dense(node, copies), merged)
    if n % out == 0 and torch.equal(index, torch.arange(out) * (n // out) + index[0]):
        return emit(node, aten.slice.Tensor, x, axis, int(index[0]), n, n // out)
    constant = new_constant(module, f"{node.name}_index", index, node)
    return emit(node, aten.index_select.default, x, axis, constant)


_RULES: dict[Any, Callable[[fx.GraphModule, fx.Node, fx.Node], fx.Node]] = {
    aten.upsample_linear1d.vec: _resize(1, _linear),
    aten.upsample_bilinear2d.vec: _resize(2, _linear),
    aten.upsample_trilinear3d.vec: _resize(3, _linear),
    aten.upsample_bicubic2d.vec: _resize(2, _cubic),
    aten._upsample_bilinear2d_aa.vec: _resize(  # noqa: SLF001
        2,
        _antialiased(aten._upsample_bilinear2d_aa.default),  # noqa: SLF001
    ),
    aten._upsample_bicubic2d_aa.vec: _resize(2, _antialiased(aten._upsample_bicubic2d_aa.default)),  # noqa: SLF001
    aten.upsample_nearest1d.vec: _nearest(1, exact=False),
    aten.upsample_nearest2d.vec: _nearest(2, exact=False),
    aten.upsample_nearest3d.vec: _nearest(3, exact=False),
    aten._upsample_nearest_exact1d.vec: _nearest(1, exact=True),  # noqa: SLF001
    aten._upsample_nearest_exact2d.vec: _nearest(2, exact=True),  # noqa: SLF001
    aten._upsample_nearest_exact3d.vec: _nearest(3, exact=True),  # noqa: SLF001
    aten._adaptive_avg_pool2d.default: _adaptive(2),  # noqa: SLF001
    aten._adaptive_avg_pool3d.default: _adaptive(3),  # noqa: SLF001
    aten.adaptive_avg_pool1d.default: _adaptive(1),
}
