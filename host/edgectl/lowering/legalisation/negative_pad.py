"""Constant padding by negative amounts is a crop; TOSA's pad only grows."""

from __future__ import annotations

import torch
from torch import fx

from edgectl.lowering.legalisation.emit import emit, replace

__all__ = ["crop_negative_pads"]

aten = torch.ops.aten


def crop_negative_pads(module: fx.GraphModule) -> int:
    """Slices off what is negative, pads what is positive."""
    count = 0
    for node in list(module.graph.nodes):
        if node.target is not aten.constant_pad_nd.default:
            continue
        x, amounts = node.args[0], list(node.args[1])
        if not isinstance(x, fx.Node) or all(a >= 0 for a in amounts):
            continue
        rank = x.meta["val"].dim()
        value = x
        for pair in range(len(amounts) // 2):
            axis = rank - 1 - pair
            size = x.meta["val"].shape[axis]
            before, after = (min(a, 0) for a in amounts[2 * pair : 2 * pair + 2])
            if before or after:
                value = emit(node, aten.slice.Tensor, value, axis, -before, size + after)
        grown = [max(a, 0) for a in amounts]
        if any(grown):
            fill = node.args[2] if len(node.args) > 2 else node.kwargs.get("value", 0.0)
            value = emit(node, aten.constant_pad_nd.default, value, grown, fill)
        replace(node, value)
        count += 1
    return count
