"""Arithmetic on bytes and other narrow integers: in int32, wrapped to what the type can hold.

TOSA's integers are signed and its arithmetic is on int32; a uint8 tensor handed to it as it is
would be read as signed. So a narrow value is widened where it enters (``& 255`` gives back a byte
above 127), every operation on it runs in int32, and results that may leave the range are wrapped
as PyTorch wraps them. Values of quantized operators of this project are left alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgectl.lowering.legalisation.emit import emit

__all__ = ["widen_narrow_integers"]

aten = torch.ops.aten
_NARROW = {torch.uint8: 8, torch.int8: 8, torch.int16: 16}
_CAST = aten._to_copy.default  # noqa: SLF001
# What can give a value that was in none of its operands.
_LEAVES_RANGE = {"add", "sub", "rsub", "mul", "neg", "pow", "abs", "bitwise_not", "sum", "prod"}
_LEAVES_RANGE |= {"__lshift__", "bitwise_left_shift", "cumsum", "_to_copy", "square", "div", "dot"}
_LEAVES_RANGE |= {"bitwise_xor", "mm", "bmm", "full_like", "where", "constant_pad_nd"}


def widen_narrow_integers(module: fx.GraphModule) -> int:
    """Rewrites in place; returns how many operations."""
    wide: dict[fx.Node, fx.Node] = {}
    foreign: set[fx.Node] = set()
    count = 0
    for node in list(module.graph.nodes):
        kind = _dtype(node)
        if node.op != "call_function":
            continue
        narrow = [n for n in node.all_input_nodes if _dtype(n) in _NARROW]
        if not _ours(node) or any(n in foreign for n in narrow):
            if kind in _NARROW:
                foreign.add(node)
            continue
        if not narrow and kind not in _NARROW:
            continue
        if node.target is _CAST and narrow and kind not in _NARROW:
            node.replace_input_with(narrow[0], _widened(node, narrow[0], wide))
            count += 1
            continue
        new = _retyped(node, narrow, kind, wide)
        count += 1
        if kind in _NARROW:
            wide[node] = new
            back = emit(node, _CAST, new, dtype=kind)
            for user in list(node.users):
                if user is not back:
                    user.replace_input_with(node, back)
            wide[back] = new
        else:
            node.replace_all_uses_with(new)
    return count


def _dtype(node: fx.Node) -> Any:
    return getattr(node.meta.get("val"), "dtype", None)


def _ours(node: fx.Node) -> bool:
    return getattr(node.target, "namespace", "") in ("aten", "prims")


def _widened(before: fx.Node, node: fx.Node, wide: dict[fx.Node, fx.Node]) -> fx.Node:
    if node not in wide:
        anchor = node.next if node.op in ("placeholder", "get_attr") else before
        while anchor.op == "placeholder":
            anchor = anchor.next
        value = emit(anchor, _CAST, node, dtype=torch.int32)
        if _dtype(node) is torch.uint8:
            value = emit(anchor, aten.bitwise_and.Scalar, value, 255)
        wide[node] = value
    return wide[node]


def _retyped(
    node: fx.Node, narrow: list[fx.Node], kind: Any, wide: dict[fx.Node, fx.Node]
) -> fx.Node:
    """The same operation on the widened operands."""
    inputs = {n: _widened(node, n, wide) for n in narrow}
    args = fx.node.map_arg(node.args, lambda n: inputs.get(n, n))
    kwargs = dict(fx.node.map_arg(node.kwargs, lambda n: inputs.get(n, n)))
    if kwargs.get("dtype") in _NARROW:
        kwargs["dtype"] = torch.int32
    new = emit(node, node.target, *args, **kwargs)
    name = str(node.target).split(".")[1]
    if kind not in _NARROW or name not in _LEAVES_RANGE:
        return new
    if kind is torch.uint8:
        return emit(node, aten.bitwise_and.Scalar, new, 255)
    half = 1 << (_NARROW[kind] - 1)
    shifted = emit(node, aten.add.Tensor, new, half)
    masked = emit(node, aten.bitwise_and.Scalar, shifted, 2 * half - 1)
    return emit(node, aten.sub.Tensor, masked, half)
