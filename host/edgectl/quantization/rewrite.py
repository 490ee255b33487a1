"""Puts quantize/dequantize pairs into a graph, so that it computes what the integers will.

    before:  x -> conv(w) -> relu -> y
    after:   x -> q -> dq -> conv(dq(w_int8)) -> relu -> q -> dq -> y

The operators are PyTorch's own (``quantized_decomposed``), so the result is the same kind of
program that a user's PT2E flow makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed
from torch import fx

from edgectl.graph import constant_of, new_constant
from edgectl.quantization.operators import Kind
from edgectl.quantization.parameters import (
    INT8_MAX,
    INT8_MIN,
    ActivationParameters,
    weight_scales,
)
from edgectl.quantization.plan import Plan

__all__ = ["WeightValues", "insert_pairs", "quantize_weight", "replace_weight"]

q = torch.ops.quantized_decomposed

# What a channel's bias may reach in units of its accumulator: float32 still holds it exactly.
_BIAS_LIMIT = float(1 << 24)

WeightValues = Mapping[fx.Node, tuple[torch.Tensor, torch.Tensor]]
"""Layer's node -> int8 weight (as float tensor of integers) and scales."""


def quantize_weight(
    weight: torch.Tensor,
    axis: int | None,
    *,
    bias: torch.Tensor | None = None,
    input_scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounds a weight to ``[-127, 127]``; returns (int8 tensor, float32 scales).

    A channel whose bias dwarfs its weights gets a coarser scale, so that the bias still fits
    beside the products in the 32-bit accumulator.
    """
    scales = weight_scales(weight, axis)
    if bias is not None and input_scale is not None and axis is not None:
        scales = torch.maximum(scales, bias.abs().float() / (input_scale * _BIAS_LIMIT))
    shape = [1] * weight.dim()
    if axis is not None:
        shape[axis] = -1
    rounded = torch.round(weight.float() / scales.reshape(shape)).clamp(-INT8_MAX, INT8_MAX)
    return rounded.to(torch.int8), scales


def insert_pairs(
    module: fx.GraphModule,
    plan: Plan,
    parameters: Mapping[fx.Node, ActivationParameters],
    weights: WeightValues,
) -> dict[str, ActivationParameters]:
    """Rewrites ``module`` in place; returns the parameters of the int8 results by node name.

    ``parameters`` is by group representative, ``weights`` by layer node.
    """
    names: dict[str, ActivationParameters] = {}
    results = {layer.result for layer in plan.layers.values()}
    for node in plan.quantized:
        chosen = parameters[plan.root(node)]
        if isinstance(node.meta.get("val"), tuple | list):
            continue  # several values; each getitem after it is one of its own
        names[node.name] = chosen
        readers = list(node.users)
        if node not in results:
            wanted = {layer.node for layer in plan.layers.values() if node in layer.inputs}
            readers = [user for user in readers if user in wanted]
        _insert_pair(module, node, chosen, readers)
    for layer in plan.layers.values():
        if layer.weight is not None:
            replace_weight(module, layer.node, layer.weight, layer.weight_axis, weights[layer.node])
        elif layer.kind is Kind.GATHER:
            _replace_table(module, layer.node, parameters[plan.root(layer.result)])
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    return names


def _insert_pair(
    module: fx.GraphModule, node: fx.Node, chosen: ActivationParameters, readers: list[fx.Node]
) -> None:
    place = node
    if node.op == "placeholder":
        place = [n for n in module.graph.nodes if n.op == "placeholder"][-1]
    arguments = (chosen.scale, chosen.zero_point, chosen.minimum, chosen.maximum, torch.int8)
    with module.graph.inserting_after(place):
        quantized = module.graph.call_function(q.quantize_per_tensor.default, (node, *arguments))
    with module.graph.inserting_after(quantized):
        restored = module.graph.call_function(
            q.dequantize_per_tensor.default, (quantized, *arguments)
        )
    for new in (quantized, restored):
        new.meta = {k: v for k, v in node.meta.items() if k in ("nn_module_stack", "stack_trace")}
    for user in readers:
        user.replace_input_with(node, restored)


def replace_weight(
    module: fx.GraphModule,
    node: fx.Node,
    weight: fx.Node,
    axis: int | None,
    stored_weight: tuple[torch.Tensor, torch.Tensor],
) -> None:
    """The layer reads its int8 weight, dequantized; the int8 values are what is stored."""
    values, scales = stored_weight
    name = str(weight.target)
    stored = _shared_constant(module, f"{name}_int8", values.to(torch.int8), node)
    if axis is None:
        arguments: tuple[Any, ...] = (stored, float(scales), 0, INT8_MIN, INT8_MAX, torch.int8)
        target = q.dequantize_per_tensor.default
    else:
        scale_node = _shared_constant(module, f"{name}_scale", scales.float(), node)
        zeros = _shared_constant(
            module, f"{name}_zero", torch.zeros(scales.numel(), dtype=torch.int64), node
        )
        arguments = (stored, scale_node, zeros, axis, INT8_MIN, INT8_MAX, torch.int8)
        target = q.dequantize_per_channel.default
    with module.graph.inserting_before(node):
        restored = module.graph.call_function(target, arguments)
    restored.meta = {k: v for k, v in node.meta.items() if k in ("nn_module_stack", "stack_trace")}
    # Only the weight's own position: a value used as weight and as input stays two things.
    node.args = (node.args[0], restored, *node.args[2:])


def _replace_table(module: fx.GraphModule, node: fx.Node, chosen: ActivationParameters) -> None:
    table = constant_of(module, node.args[0])
    if table is None or not isinstance(node.args[0], fx.Node):
        return
    arguments = (chosen.scale, chosen.zero_point, chosen.minimum, chosen.maximum, torch.int8)
    values = q.quantize_per_tensor.default(table, *arguments)
    stored = _shared_constant(module, f"{node.args[0].target}_int8", values, node)
    with module.graph.inserting_before(node):
        restored = module.graph.call_function(q.dequantize_per_tensor.default, (stored, *arguments))
    node.args = (restored, *node.args[1:])


def _shared_constant(
    module: fx.GraphModule, name: str, value: torch.Tensor, before: fx.Node
) -> fx.Node:
    """A constant that equal calls of one layer share, so that its weight is stored once."""
    stem = name.replace(".", "_")
    existing = getattr(module, stem, None)
    if (
        isinstance(existing, torch.Tensor)
        and (existing.dtype, existing.shape) == (value.dtype, value.shape)
        and torch.equal(existing, value)
    ):
        with module.graph.inserting_before(before):
            return module.graph.get_attr(stem)
    return new_constant(module, stem, value, before)
