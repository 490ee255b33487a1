"""Computes at compile time whatever does not depend on the model's inputs.

Positions, masks, rotary tables and the indices of padding and resizing are `arange` arithmetic
on int64 that TOSA could not say; as constants they are nothing but data. A result that is much
larger than what it was made of stays code (a broadcast scalar should not become a megabyte).
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from edgectl.graph import constant_of, new_constant

__all__ = ["fold_constants"]

_GROWTH_LIMIT_BYTES = 1 << 20


def fold_constants(module: fx.GraphModule) -> int:
    """Replaces constant subgraphs in place; returns how many operations went away."""
    values: dict[fx.Node, Any] = {}
    folded = 0
    for node in list(module.graph.nodes):
        if node.op == "get_attr":
            values[node] = constant_of(module, node)
            continue
        if node.op != "call_function" or not _pure(node):
            continue
        if any(argument not in values for argument in node.all_input_nodes):
            continue
        with torch.no_grad():
            arguments = fx.node.map_arg(node.args, values.__getitem__)
            keywords = fx.node.map_arg(node.kwargs, values.__getitem__)
            value = node.target(*arguments, **keywords)
        if isinstance(value, torch.Tensor) and _grew(value, node, values):
            continue
        values[node] = value
        folded += 1
    for node, value in values.items():
        if node.op != "call_function" or not isinstance(value, torch.Tensor):
            continue
        if all(user in values for user in node.users):
            continue  # only feeds other constants
        constant = new_constant(module, f"folded_{node.name}", value, node)
        constant.meta = {**node.meta, "val": node.meta.get("val", value)}
        node.replace_all_uses_with(constant, delete_user_cb=lambda u: u not in values)
    module.graph.eliminate_dead_code()
    module.recompile()
    return folded


def _pure(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return True
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:  # noqa: SLF001
        return False
    if target.namespace not in ("aten", "prims", "quantized_decomposed"):
        return False
    return torch.Tag.nondeterministic_seeded not in target.tags


def _grew(value: torch.Tensor, node: fx.Node, values: dict[fx.Node, Any]) -> bool:
    size = value.numel() * value.element_size()
    before = sum(
        v.numel() * v.element_size()
        for v in (values[n] for n in node.all_input_nodes)
        if isinstance(v, torch.Tensor)
    )
    return size > _GROWTH_LIMIT_BYTES and size > 2 * before
