"""Reading quantize/dequantize pairs: ours, torchao's PT2E, and a QAT export's are all the same.

int8 --dequantize--> float operator(s) --quantize--> int8
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed
from torch import fx

from edgectl.graph import constant_of, new_constant
from edgectl.graph.constants import whole

__all__ = ["Int8Value", "Int8Weight", "int8_of", "normalise_unsigned", "quantizer_of", "weight_of"]

q = torch.ops.quantized_decomposed
aten = torch.ops.aten

QUANTIZE = {q.quantize_per_tensor.default, q.quantize_per_tensor.tensor}
DEQUANTIZE = {q.dequantize_per_tensor.default, q.dequantize_per_tensor.tensor}
QUANTIZE_CHANNEL = {q.quantize_per_channel.default}
DEQUANTIZE_CHANNEL = {q.dequantize_per_channel.default}


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Value:
    """An int8 node and what its integers mean."""

    node: fx.Node
    scale: float
    zero_point: int
    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Weight:
    """A constant int8 weight; ``scales`` has one entry, or one for each index along ``axis``."""

    values: torch.Tensor
    scales: torch.Tensor
    axis: int | None
    zero: bool
    name: str


def _number(module: fx.GraphModule, value: Any) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    constant = constant_of(module, value)
    return float(constant) if constant is not None and constant.numel() == 1 else None


def _parameters(module: fx.GraphModule, node: fx.Node) -> Int8Value | None:
    x, scale, zero_point, minimum, maximum, dtype = node.args[:6]
    known_scale, known_zero = _number(module, scale), _number(module, zero_point)
    if known_scale is None or known_zero is None or dtype is not torch.int8:
        return None
    return Int8Value(
        node=x,  # type: ignore[arg-type]
        scale=known_scale,
        zero_point=int(known_zero),
        minimum=whole(minimum),
        maximum=whole(maximum),
    )


def int8_of(module: fx.GraphModule, node: Any) -> Int8Value | None:
    """The int8 value that ``node`` dequantizes, or ``None``."""
    if not isinstance(node, fx.Node) or node.target not in DEQUANTIZE:
        return None
    return _parameters(module, node)


def quantizer_of(module: fx.GraphModule, node: fx.Node) -> Int8Value | None:
    """How a quantize node stores its input (``node`` of the answer is the quantize node)."""
    if node.target not in QUANTIZE:
        return None
    found = _parameters(module, node)
    if found is None:
        return None
    return Int8Value(
        node=node,
        scale=found.scale,
        zero_point=found.zero_point,
        minimum=found.minimum,
        maximum=found.maximum,
    )


def weight_of(module: fx.GraphModule, node: Any) -> Int8Weight | None:
    """The constant int8 weight behind ``node``, or ``None``."""
    if not isinstance(node, fx.Node):
        return None
    if node.target in (aten.t.default, aten.transpose.int, aten.permute.default):
        return _moved(weight_of(module, node.args[0]), node)
    if node.target in DEQUANTIZE_CHANNEL:
        source, scales, zeros, axis, _, _, dtype = node.args[:7]
        scale_values, zero_values = constant_of(module, scales), constant_of(module, zeros)
        values = _integers(module, source)
        if scale_values is None or values is None or dtype is not torch.int8:
            return None
        return Int8Weight(
            values=values,
            scales=scale_values.float(),
            axis=whole(axis),
            zero=zero_values is None or not bool(zero_values.any()),
            name=str(getattr(source, "target", "weight")),
        )
    if node.target in DEQUANTIZE:
        found = _parameters(module, node)
        values = _integers(module, node.args[0]) if found else None
        if found is None or values is None:
            return None
        return Int8Weight(
            values=values,
            scales=torch.tensor([found.scale], dtype=torch.float32),
            axis=None,
            zero=found.zero_point == 0,
            name=str(getattr(node.args[0], "target", "weight")),
        )
    return None


def _moved(weight: Int8Weight | None, node: fx.Node) -> Int8Weight | None:
    if weight is None:
        return None
    rank = weight.values.dim()
    target: Any = node.target
    values = target(weight.values, *node.args[1:])
    axis = weight.axis
    if axis is not None:
        marks = torch.zeros([2 if d == axis else 1 for d in range(rank)])
        axis = list(target(marks, *node.args[1:]).shape).index(2)
    return Int8Weight(
        values=values, scales=weight.scales, axis=axis, zero=weight.zero, name=weight.name
    )


def _integers(module: fx.GraphModule, node: Any) -> torch.Tensor | None:
    """The constant integers that ``node`` holds: stored ones, or a constant quantized here."""
    stored = constant_of(module, node)
    if stored is not None:
        return stored if stored.dtype == torch.int8 else None
    if not isinstance(node, fx.Node) or node.target not in QUANTIZE | QUANTIZE_CHANNEL:
        return None
    arguments: list[Any] = []
    for argument in node.args:
        if isinstance(argument, fx.Node):
            constant = constant_of(module, argument)
            if constant is None:
                return None
            arguments.append(constant)
        else:
            arguments.append(argument)
    target: Any = node.target
    result: torch.Tensor = target(*arguments)
    return result if result.dtype == torch.int8 else None


def evaluate_constants(module: fx.GraphModule) -> None:
    """Quantized constants become int8 constants."""
    for node in list(module.graph.nodes):
        if node.target in QUANTIZE and constant_of(module, node.args[0]) is not None:
            values = _integers(module, node)
            if values is not None:
                name = f"{node.args[0].target}_int8"
                node.replace_all_uses_with(new_constant(module, name, values, node))
                module.graph.erase_node(node)


def normalise_unsigned(module: fx.GraphModule) -> None:
    """uint8 pairs (as Intel's quantizer makes them) become int8 pairs, shifted by 128.

    Only where the integers stay between a quantize and its dequantizes.
    """
    for node in list(module.graph.nodes):
        if node.target not in QUANTIZE or node.args[5] is not torch.uint8:
            continue
        if not all(user.target in DEQUANTIZE for user in node.users):
            continue
        for pair in (node, *node.users):
            x, scale, zero_point, minimum, maximum, _ = pair.args[:6]
            if not isinstance(zero_point, int):
                zero_point = int(_number(module, zero_point) or 0)
                pair.target = (
                    q.quantize_per_tensor.default
                    if pair is node
                    else q.dequantize_per_tensor.default
                )
                scale = _number(module, scale)
            pair.args = (x, scale, zero_point - 128, minimum - 128, maximum - 128, torch.int8)
