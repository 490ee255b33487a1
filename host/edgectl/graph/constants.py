"""Constants (parameters, buffers) of a graph module, read and added by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

__all__ = ["attribute", "constant_of", "new_constant", "whole"]


def attribute(module: torch.nn.Module, path: str) -> Any:
    """The attribute at a dotted ``path``."""
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


def whole(value: Any) -> int:
    """An integer argument of a node, which FX types as anything."""
    return int(value)


def constant_of(module: fx.GraphModule, node: Any) -> torch.Tensor | None:
    """The tensor that ``node`` reads, or ``None`` when it is not a plain constant."""
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    value = attribute(module, str(node.target))
    return value.detach() if isinstance(value, torch.Tensor) else None


def new_constant(
    module: fx.GraphModule, name: str, value: torch.Tensor, before: fx.Node
) -> fx.Node:
    """Adds ``value`` as a buffer under a free name and returns a node that reads it."""
    stem = name.replace(".", "_").strip("_") or "constant"
    free, count = stem, 0
    while hasattr(module, free):
        count += 1
        free = f"{stem}_{count}"
    module.register_buffer(free, value.detach().clone().contiguous())
    with module.graph.inserting_before(before):
        node = module.graph.get_attr(free)
    node.meta["val"] = value
    return node
