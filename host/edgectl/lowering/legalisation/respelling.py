"""Core ATen operators that torch-mlir knows only under another spelling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from edgectl.lowering.legalisation.emit import emit, replace

__all__ = ["respell"]

aten = torch.ops.aten


def respell(module: fx.GraphModule) -> int:
    """Rewrites each in place; returns how many."""
    count = 0
    for node in list(module.graph.nodes):
        rule = _RULES.get(node.target) if node.op == "call_function" else None
        new = rule(node) if rule is not None else None
        if new is not None:
            replace(node, new)
            count += 1
    return count


def _as_view(node: fx.Node) -> fx.Node | None:
    shape = list(node.meta["val"].shape)
    if not all(isinstance(size, int) for size in shape):
        return _squeezed(node)
    return emit(node, aten.view.default, node.args[0], shape)


def _squeezed(node: fx.Node) -> fx.Node | None:
    """One axis at a time, where sizes are only known at run time."""
    if node.target is not aten.squeeze.dims:
        return None
    x: Any = node.args[0]
    rank, axes = x.meta["val"].dim(), list(node.args[1])  # type: ignore[arg-type]
    for axis in sorted({int(a) % rank for a in axes}, reverse=True):
        x = emit(node, aten.squeeze.dim, x, axis)
    return x  # type: ignore[no-any-return]


def _bool_product(node: fx.Node) -> fx.Node | None:
    kinds = [n.meta["val"].dtype for n in node.all_input_nodes]
    if node.meta["val"].dtype is not torch.bool or set(kinds) != {torch.bool} or len(node.args) < 2:
        return None
    return emit(node, aten.logical_and.default, *node.args[:2])


_RULES: dict[Any, Callable[[fx.Node], fx.Node | None]] = {
    aten.squeeze.dims: _as_view,
    aten.mul.Tensor: _bool_product,
    aten.squeeze.default: _as_view,
    aten.squeeze.dim: _as_view,
}
