"""Copies that move no data in a functional graph."""

from __future__ import annotations

import torch
from torch import fx

from edgectl.lowering.legalisation.emit import replace

__all__ = ["drop_copies"]

aten = torch.ops.aten
_CHECKS = {
    aten._assert_tensor_metadata.default,  # noqa: SLF001
    aten._assert_scalar.default,  # noqa: SLF001
    aten._assert_async.msg,  # noqa: SLF001
    aten.sym_constrain_range_for_size.default,
}
_COPIES = {
    aten.clone.default,
    aten.alias.default,
    aten.lift_fresh_copy.default,
    aten.detach.default,
    aten.contiguous.default,
}


def drop_copies(module: fx.GraphModule) -> int:
    """``clone``, ``alias`` and their kind are their argument; assertions go."""
    count = 0
    for node in list(module.graph.nodes):
        if node.target in _CHECKS and not node.users:
            module.graph.erase_node(node)  # shapes are fixed; there is nothing left to check
            count += 1
        elif node.op == "call_function" and node.target in _COPIES:
            source = node.args[0]
            if isinstance(source, fx.Node):
                replace(node, source)
                count += 1
    return count
