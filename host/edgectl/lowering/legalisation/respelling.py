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
        return None
    return emit(node, aten.view.default, node.args[0], shape)


_RULES: dict[Any, Callable[[fx.Node], fx.Node | None]] = {
    aten.squeeze.dims: _as_view,
    aten.squeeze.default: _as_view,
    aten.squeeze.dim: _as_view,
}
