"""Channels-last from end to end: permutes move down the graph until they meet and cancel.

The fold writes every convolution with a permute before and one after. Between two convolutions
they are each other's inverse as soon as what stands between them works in either order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgectl.graph.constants import whole

__all__ = ["channels_last", "merge_equal"]

edge = torch.ops.edgectl
aten = torch.ops.aten

_TO_FIRST = [0, 3, 1, 2]

_ANY_ORDER = {
    edge.quantize.default: 1,
    edge.dequantize.default: 1,
    edge.table.default: 1,
    edge.widen.default: 1,
    aten.add.Tensor: 2,
    aten.sub.Tensor: 2,
    aten.mul.Tensor: 2,
    edge.add.default: 2,
    edge.multiply.default: 2,
    aten.relu.default: 1,
    aten.hardtanh.default: 1,
    aten.clamp.default: 1,
}

_BY_LAST_AXIS = {
    edge.requantize.default,
    edge.rescale.default,
    edge.accumulator_to_float.default,
}


def _is_single(node: Any) -> bool:
    return isinstance(node, fx.Node) and bool(node.meta["val"].numel() == 1)


def _view_without_permute(node: fx.Node) -> None:
    """A permute that moves only dimensions of size one changes no byte: the view does it all."""
    order = _order(node.args[0])
    if order is None:
        return
    source: Any = node.args[0].args[0]  # type: ignore[union-attr]
    shape = source.meta["val"].shape
    long_dims = [d for d in order if shape[d] != 1]
    if long_dims == sorted(long_dims):
        node.args = (source, *node.args[1:])


def _order(node: Any) -> list[int] | None:
    if isinstance(node, fx.Node) and node.target is aten.permute.default:
        rank = node.meta["val"].dim()
        order: Any = node.args[1]
        return [int(d) % rank for d in order]
    return None


def _first_order(nodes: Any) -> list[int] | None:
    """The way back from channels-last, if one of ``nodes`` takes it."""
    return _TO_FIRST if any(_order(n) == _TO_FIRST for n in nodes) else None


def _inverse(order: list[int]) -> list[int]:
    return [order.index(d) for d in range(len(order))]


def _set_value(node: fx.Node, target: Any, arguments: Any) -> None:
    values = fx.map_arg(
        arguments,
        lambda n: torch.empty(
            tuple(int(s) for s in n.meta["val"].shape), dtype=n.meta["val"].dtype, device="meta"
        ),
    )
    node.meta["val"] = target(*values)


def channels_last(module: fx.GraphModule) -> None:
    """Moves permutes below operators that do not care about the order of dimensions."""
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in (aten.permute.default, aten.reshape.default):
            _cancel(module, node)
            continue
        uniform = node.target in _BY_LAST_AXIS and _is_single(node.args[1])
        if uniform:
            _sink(module, node, list(node.args), [0])
        elif node.target in _ANY_ORDER:
            _sink(module, node, list(node.args), list(range(_ANY_ORDER[node.target])))
        elif node.target is aten.cat.default:
            _sink_join(module, node)
        elif node.target is edge.pad.default:
            _sink_pad(module, node)
        elif node.target is edge.sum.default:
            _sink_sum(module, node)


def _operand(
    module: fx.GraphModule, node: fx.Node, argument: fx.Node, order: list[int]
) -> fx.Node | None:
    """``argument`` as it was before a permute by ``order``; ``None`` when that costs one."""
    if _order(argument) == order:
        return argument.args[0]  # type: ignore[return-value]
    value = argument.meta["val"]
    if value.dim() != len(order):
        return argument if value.numel() == 1 else None
    with module.graph.inserting_before(node):
        moved = module.graph.call_function(aten.permute.default, (argument, _inverse(order)))
    _set_value(moved, aten.permute.default, (argument, _inverse(order)))
    return moved


def _sink(module: fx.GraphModule, node: fx.Node, arguments: list[Any], places: list[int]) -> None:
    order = _first_order(arguments[p] for p in places)
    if order is None:
        return
    if not all(isinstance(arguments[p], fx.Node) for p in places):
        places = places[:1]
        if not isinstance(arguments[0], fx.Node):
            return
    operands = [_operand(module, node, arguments[p], order) for p in places]
    if any(o is None for o in operands):
        return
    for place, operand in zip(places, operands, strict=True):
        arguments[place] = operand
    _replace(module, node, tuple(arguments), order)


def _replace(module: fx.GraphModule, node: fx.Node, arguments: Any, order: list[int]) -> None:
    with module.graph.inserting_before(node):
        new = module.graph.call_function(node.target, arguments, node.kwargs)  # type: ignore[arg-type]
        new.meta = dict(node.meta)
        _set_value(new, node.target, arguments)
        back = module.graph.call_function(aten.permute.default, (new, order))
        back.meta = dict(node.meta)
    node.replace_all_uses_with(back)
    module.graph.erase_node(node)


def _sink_join(module: fx.GraphModule, node: fx.Node) -> None:
    parts: Any = node.args[0]
    order = _first_order(parts)
    if order is None:
        return
    operands = [_operand(module, node, part, order) for part in parts]
    if any(o is None for o in operands):
        return
    dim = whole(node.args[1]) if len(node.args) > 1 else 0
    _replace(module, node, (operands, order[dim % len(order)]), order)


def _sink_pad(module: fx.GraphModule, node: fx.Node) -> None:
    order = _first_order(node.args[:1])
    if order is None:
        return
    pads: Any = node.args[1]
    moved = [0] * len(pads)
    for place, dim in enumerate(order):
        moved[2 * dim : 2 * dim + 2] = pads[2 * place : 2 * place + 2]
    source = node.args[0].args[0]  # type: ignore[union-attr]
    _replace(module, node, (source, moved, node.args[2]), order)


def _sink_sum(module: fx.GraphModule, node: fx.Node) -> None:
    order = _first_order(node.args[:1])
    if order is None:
        return
    dims: Any = node.args[1]
    source = node.args[0].args[0]  # type: ignore[union-attr]
    _replace(module, node, (source, [order[d] for d in dims]), order)


def _cancel(module: fx.GraphModule, node: fx.Node) -> None:
    """Two permutes in a row become one, or none; so do an unsqueeze and the squeeze before."""
    source: Any = node.args[0]
    if node.target is aten.reshape.default:
        _view_without_permute(node)
        source = node.args[0]
        while source.target is aten.reshape.default:
            source = source.args[0]
            node.args = (source, node.args[1])
        if list(source.meta["val"].shape) == list(node.meta["val"].shape):
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)
        return
    order = _order(node)
    inner = _order(source)
    while order is not None and inner is not None:
        source = source.args[0]
        order = [inner[d] for d in order]
        node.args = (source, order)
        inner = _order(source)
    if order is not None and order == sorted(order):
        node.replace_all_uses_with(source)
        module.graph.erase_node(node)


def merge_equal(module: fx.GraphModule) -> None:
    """Permutes of the same value by the same order are one."""
    seen: dict[Any, fx.Node] = {}
    for node in list(module.graph.nodes):
        order = _order(node)
        if order is None:
            continue
        key = (node.args[0], tuple(order))
        if key in seen:
            node.replace_all_uses_with(seen[key])
            module.graph.erase_node(node)
        else:
            seen[key] = node
