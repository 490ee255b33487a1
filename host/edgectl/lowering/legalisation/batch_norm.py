"""Batch normalisation in evaluation: folded into the layer before it, else one multiply and add."""

from __future__ import annotations

import torch
from torch import fx

from edgectl.graph import fold_batch_norms, new_constant
from edgectl.graph.batch_norm import normalisation_of, normalised_value
from edgectl.lowering.legalisation.emit import emit

__all__ = ["rewrite_batch_norms"]

aten = torch.ops.aten


def rewrite_batch_norms(module: fx.GraphModule) -> int:
    """Folds what can be folded; the rest becomes ``x * s + t``."""
    count = fold_batch_norms(module)
    for node in list(module.graph.nodes):
        constants = normalisation_of(module, node) if node.op == "call_function" else None
        value = normalised_value(node) if constants else None
        if constants is None or value is None:
            continue
        x = node.args[0]
        if not isinstance(x, fx.Node):
            continue
        rank, kind = x.meta["val"].dim(), x.meta["val"].dtype
        shape = [1, -1, *([1] * (rank - 2))]
        scale = new_constant(
            module, f"{node.name}_scale", constants[0].reshape(shape).to(kind), node
        )
        shift = new_constant(
            module, f"{node.name}_shift", constants[1].reshape(shape).to(kind), node
        )
        scaled = emit(node, aten.mul.Tensor, x, scale)
        value.replace_all_uses_with(emit(node, aten.add.Tensor, scaled, shift))
        count += 1
    return count
