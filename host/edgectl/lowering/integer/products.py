"""Linear layers and matrix products on int8."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import fx

from edgectl.graph import constant_of
from edgectl.lowering.integer.builder import Builder, Ending, zero_fold
from edgectl.lowering.integer.pairs import Int8Value, Int8Weight, int8_of, weight_of

__all__ = ["fold_linear", "fold_matmul"]

edge = torch.ops.edgectl
aten = torch.ops.aten
q = torch.ops.quantized_decomposed

_DYNAMIC_LEVELS = 127.0


def fold_linear(builder: Builder, node: fx.Node) -> bool:
    """``aten.linear``; False when it stays float."""
    value = int8_of(builder.module, node.args[0])
    weight = weight_of(builder.module, node.args[1])
    argument = node.args[2] if len(node.args) > 2 else None
    bias = None if argument is None else constant_of(builder.module, argument)
    if value is None and weight is not None and weight.zero and weight.axis in (None, 0):
        return _fold_dynamic(builder, node, weight, bias)
    if value is None or weight is None or (argument is not None and bias is None):
        return False
    if weight.axis not in (None, 0) or not weight.zero:
        return False
    return _fully_connected(builder, node, value, weight, weight.values.t(), bias)


def _fold_dynamic(
    builder: Builder, node: fx.Node, weight: Int8Weight, bias: torch.Tensor | None
) -> bool:
    """A linear layer whose input's range is measured on each call (symmetric, by tensor)."""
    restored: Any = node.args[0]
    if restored.target is not q.dequantize_per_tensor.tensor:
        return False
    stored: Any = restored.args[0]
    scale: Any = stored.args[1] if stored.target is q.quantize_per_tensor.tensor else None
    chosen: Any = getattr(scale, "args", (None,))[0]
    if getattr(chosen, "target", None) is not q.choose_qparams_symmetric.tensor:
        return False
    source: Any = stored.args[0]
    shape = [int(s) for s in source.meta["val"].shape]
    rows = builder.call(aten.reshape.default, source, [prod(shape[:-1]), shape[-1]])
    largest = builder.call(aten.amax.default, builder.call(aten.abs.default, rows), [0, 1], True)
    least = builder.call(aten.clamp.default, largest, float(chosen.args[3]) * _DYNAMIC_LEVELS)
    step = builder.call(aten.mul.Tensor, least, 1.0 / _DYNAMIC_LEVELS)
    scaled = builder.call(aten.div.Tensor, rows, step)
    integers = builder.call(edge.quantize.default, scaled, 1.0, 0, -127, 127)
    matrix = weight.values.t()
    accumulator = builder.call(
        edge.fully_connected.default,
        integers,
        builder.constant(weight.name, matrix),
        builder.constant("zeros", torch.zeros(matrix.shape[1], dtype=torch.int32)),
    )
    scales = builder.constant("accumulator_scale", weight.scales.expand(matrix.shape[1]).float())
    real = builder.call(edge.accumulator_to_float.default, accumulator, scales, 0)
    result = builder.call(aten.mul.Tensor, real, step)
    if bias is not None:
        result = builder.call(aten.add.Tensor, result, builder.constant("bias", bias))
    whole = [*shape[:-1], int(matrix.shape[1])]
    node.replace_all_uses_with(builder.call(aten.reshape.default, result, whole))
    return True


def _fully_connected(
    builder: Builder,
    node: fx.Node,
    value: Int8Value,
    weight: Int8Weight,
    matrix: torch.Tensor,
    bias: torch.Tensor | None,
) -> bool:
    """``matrix`` is [K, N]."""
    total = zero_fold(matrix.sum(0, dtype=torch.int64), bias, weight.scales, value)
    if total is None:
        return False
    shape = [int(s) for s in node.args[0].meta["val"].shape]  # type: ignore[union-attr]
    rows = value.node
    if len(shape) != 2:
        rows = builder.call(aten.reshape.default, rows, [prod(shape[:-1]), shape[-1]])
    accumulator = builder.call(
        edge.fully_connected.default,
        rows,
        builder.constant(weight.name, matrix),
        builder.constant(f"{weight.name}_bias", total),
    )
    after = None
    if len(shape) != 2:
        whole = [*shape[:-1], int(matrix.shape[1])]

        def after(result: fx.Node) -> fx.Node:
            return builder.call(aten.reshape.default, result, whole)

    builder.finish(
        Ending(builder.module, node), accumulator, weight.scales.double() * value.scale, after=after
    )
    return True


def fold_matmul(builder: Builder, node: fx.Node) -> bool:
    """``matmul``, ``bmm`` and ``mm``, of two values or of a value and a constant."""
    first = int8_of(builder.module, node.args[0])
    if first is None:
        return False
    weight = weight_of(builder.module, node.args[1])
    if weight is not None and weight.zero and weight.values.dim() == 2:
        if weight.axis in (None, 1):
            return _fully_connected(builder, node, first, weight, weight.values, None)
        return False
    second = int8_of(builder.module, node.args[1])
    if second is None:
        return False
    a_shape, b_shape = (
        [int(s) for s in argument.meta["val"].shape]  # type: ignore[union-attr]
        for argument in node.args[:2]
    )
    batch = [int(s) for s in node.meta["val"].shape[:-2]]
    a = _batched(builder, first.node, a_shape, batch)
    b = _batched(builder, second.node, b_shape, batch)
    accumulator = builder.call(edge.matmul.default, a, b, first.zero_point, second.zero_point)
    whole = [int(s) for s in node.meta["val"].shape]

    def after(result: fx.Node) -> fx.Node:
        return builder.call(aten.reshape.default, result, whole)

    builder.finish(
        Ending(builder.module, node),
        accumulator,
        torch.tensor([first.scale * second.scale], dtype=torch.float64),
        after=after,
    )
    return True


def _batched(builder: Builder, node: fx.Node, shape: list[int], batch: list[int]) -> fx.Node:
    """``node`` as [B, rows, columns] with the product's whole batch."""
    if len(shape) - 2 < len(batch):
        shape = [1] * (len(batch) + 2 - len(shape)) + shape
        node = builder.call(aten.reshape.default, node, shape)
    if shape[:-2] != batch:
        node = builder.call(aten.expand.default, node, [*batch, *shape[-2:]])
    flat: list[Any] = [prod(batch), *shape[-2:]]
    return builder.call(aten.reshape.default, node, flat)
