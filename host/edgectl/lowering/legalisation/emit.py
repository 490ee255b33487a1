"""Adds operations to a graph with the metadata that the importer needs."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

__all__ = ["emit", "replace"]


def emit(before: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A call of ``target`` in front of ``before``; its fake value is computed at once."""
    graph = before.graph
    with graph.inserting_before(before):
        node = graph.call_function(target, args, kwargs)
    node.meta = {k: v for k, v in before.meta.items() if k in ("nn_module_stack", "stack_trace")}
    mode = _mode_of(before)
    values = fx.node.map_arg((args, kwargs), lambda n: _fake(n.meta["val"], mode))
    with torch.no_grad():
        if mode is None:
            node.meta["val"] = target(*values[0], **values[1])
        else:
            with mode:
                node.meta["val"] = target(*values[0], **values[1])
    return node


def replace(node: fx.Node, new: fx.Node) -> None:
    """Every reader of ``node`` reads ``new``."""
    node.replace_all_uses_with(new)
    node.graph.erase_node(node)


def _mode_of(node: fx.Node) -> Any:
    for other in node.graph.nodes:
        value = other.meta.get("val")
        mode = getattr(value, "fake_mode", None)
        if mode is not None:
            return mode
    return None


def _fake(value: Any, mode: Any) -> Any:
    if mode is None or not isinstance(value, torch.Tensor) or hasattr(value, "fake_mode"):
        return value
    return mode.from_tensor(value, static_shapes=True)
