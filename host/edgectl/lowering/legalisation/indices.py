"""Indices that arrive at run time: wrapped like PyTorch's, and never outside the tensor.

A negative index counts from the end. One that is out of range is an error in PyTorch; compiled
code cannot raise one, so it is held to the nearest element instead of touching foreign memory.

Writing at few places of one axis (a key-value cache, a ring buffer) becomes a choice between
the old and the new element, which IREE compiles to plain vector code; its scatter does not
compile when the target is a slice of a larger buffer.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from edgectl.graph import constant_of, new_constant
from edgectl.lowering.legalisation.emit import emit, replace

__all__ = ["wrap_indices"]

aten = torch.ops.aten
_FEW_PLACES = 8
_PUTS = {aten.index_put.default, aten._unsafe_index_put.default}  # noqa: SLF001
# operator -> (position of the indices, position of the tensor, position of the axis or a number)
_ONE_INDEX: dict[Any, tuple[int, int, int | None]] = {
    aten.embedding.default: (1, 0, None),
    aten.index_select.default: (2, 0, 1),
    aten.gather.default: (2, 0, 1),
    aten.scatter.src: (2, 0, 1),
    aten.scatter.value: (2, 0, 1),
    aten.scatter_add.default: (2, 0, 1),
    aten.scatter_reduce.two: (2, 0, 1),
}


def wrap_indices(module: fx.GraphModule) -> int:
    """Rewrites in place; returns how many operations."""
    count = 0
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in _ONE_INDEX:
            count += _one_index(module, node)
        elif node.target in _PUTS or node.target is aten.index.Tensor:
            count += _several(module, node)
            if node.target in _PUTS:
                count += _few_places(module, node)
    return count


def _one_index(module: fx.GraphModule, node: fx.Node) -> int:
    place, tensor, axis = _ONE_INDEX[node.target]
    source: Any = node.args[tensor]
    shape = source.meta["val"].shape
    size = shape[0 if axis is None else int(node.args[axis])] if len(shape) else 1  # type: ignore[arg-type]
    new = _wrapped(module, node, node.args[place], size)
    if new is None:
        return 0
    node.update_arg(place, new)
    return 1


def _several(module: fx.GraphModule, node: fx.Node) -> int:
    source, indices = node.args[0], list(node.args[1])  # type: ignore[arg-type]
    if not isinstance(source, fx.Node):
        return 0
    changed, masked = 0, False
    for axis, index in enumerate(indices):
        if isinstance(index, fx.Node) and (places := _places_of_mask(module, node, index)):
            indices[axis] = places
            changed, masked = 1, True
            continue
        size = source.meta["val"].shape[axis]
        new = _wrapped(module, node, index, size) if isinstance(index, fx.Node) else None
        if new is not None:
            indices[axis] = new
            changed = 1
    if masked and node.target is aten.index.Tensor:  # its size is known now
        replace(node, emit(node, aten.index.Tensor, source, indices))
    elif changed:
        node.update_arg(1, indices)
    return changed


def _places_of_mask(module: fx.GraphModule, node: fx.Node, index: fx.Node) -> fx.Node | None:
    """A constant mask of one axis as the places where it is true."""
    constant = constant_of(module, index)
    if constant is None or constant.dtype is not torch.bool or constant.dim() != 1:
        return None
    return new_constant(module, f"{node.name}_true", constant.nonzero()[:, 0], node)


def _wrapped(module: fx.GraphModule, node: fx.Node, index: Any, size: Any) -> fx.Node | None:
    """The index within ``0 .. size - 1``; ``None`` where it is that already or not an integer."""
    value = index.meta["val"]
    if value.dtype not in (torch.int32, torch.int64) or not isinstance(size, int) or size == 0:
        return None
    if (constant := constant_of(module, index)) is not None:
        if not bool((constant < 0).any()):
            return None
        wrapped = torch.where(constant < 0, constant + size, constant)
        return new_constant(module, f"{node.name}_wrapped", wrapped, node)
    if index.target in (aten.argmax.default, aten.argmin.default):
        return None
    below = emit(node, aten.lt.Scalar, index, 0)
    moved = emit(node, aten.add.Tensor, index, size)
    return emit(
        node, aten.clamp.default, emit(node, aten.where.self, below, moved, index), 0, size - 1
    )


def _few_places(module: fx.GraphModule, node: fx.Node) -> int:
    """``index_put`` of one index of few places along one axis, the last writer winning."""
    x, indices, values = node.args[:3]
    accumulate = bool(node.args[3]) if len(node.args) > 3 else False
    used = [(axis, index) for axis, index in enumerate(indices) if index is not None]  # type: ignore[arg-type]
    if (
        accumulate
        or len(used) != 1
        or not isinstance(x, fx.Node)
        or not isinstance(values, fx.Node)
    ):
        return 0
    axis, index = used[0]
    shape, count = list(x.meta["val"].shape), math.prod(index.meta["val"].shape)
    if index.meta["val"].dtype is torch.bool or index.meta["val"].dim() > 1:
        return 0
    if count > _FEW_PLACES or not all(isinstance(size, int) for size in shape):
        return 0
    along = [1] * len(shape)
    along[axis] = shape[axis]
    places = new_constant(
        module, f"{node.name}_places", torch.arange(shape[axis]).reshape(along), node
    )
    flat = emit(node, aten.view.default, index, [count])
    whole = [*shape[:axis], count, *shape[axis + 1 :]]
    if index.meta["val"].dim() == 0 and values.meta["val"].dim() > len(shape) - axis - 1:
        values = emit(
            node, aten.unsqueeze.default, values, values.meta["val"].dim() - len(shape) + axis + 1
        )
    spread = emit(node, aten.expand.default, values, whole)
    result = x
    for place in range(count):
        here = emit(node, aten.slice.Tensor, flat, 0, place, place + 1)
        column = emit(node, aten.view.default, here, [1] * len(shape))
        hit = emit(node, aten.eq.Tensor, places, column)
        new = emit(node, aten.slice.Tensor, spread, axis, place, place + 1)
        result = emit(node, aten.where.self, hit, new, result)
    replace(node, result)
    return 1
