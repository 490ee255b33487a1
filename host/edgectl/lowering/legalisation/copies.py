"""Copies that move no data in a functional graph."""

from __future__ import annotations

import torch
from torch import fx

from edgectl.lowering.legalisation.emit import replace

__all__ = ["drop_copies"]

aten = torch.ops.aten
_COPIES = {aten.clone.default, aten.alias.default, aten.lift_fresh_copy.default,
           aten.detach.default, aten.contiguous.default}


def drop_copies(module: fx.GraphModule) -> int:
    """``clone``, ``alias`` and their kind are their argument."""
    count = 0
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in _COPIES:
            source = node.args[0]
            if isinstance(source, fx.Node):
                replace(node, source)
                count += 1
    return count
