"""Batch normalisation folded into the layer that feeds it.

In evaluation, batch normalisation is ``y = x * s + t`` by channel with constant ``s`` and ``t``,
so that ``norm(conv(x, w, b)) == conv(x, w * s, b * s + t)``. Each call of a layer gets its own
folded weights: a layer that is called twice and normalised by two different statistics must not
be scaled twice.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from edgectl.graph.constants import constant_of, new_constant

__all__ = ["fold_batch_norms", "normalisation_of"]

aten = torch.ops.aten

# Layer -> dimension of the weight that counts output channels.
_LAYERS: dict[Any, int] = {
    aten.conv1d.default: 0,
    aten.conv1d.padding: 0,
    aten.conv2d.default: 0,
    aten.conv2d.padding: 0,
    aten.conv3d.default: 0,
    aten.convolution.default: 0,  # what the three become when decomposed
    aten.linear.default: 0,
}
_NORMS = {
    aten.batch_norm.default: (5, 7),  # position of `training` and of `eps`
    aten._native_batch_norm_legit_no_training.default: (None, 6),  # noqa: SLF001
    aten.native_batch_norm.default: (5, 7),
    aten._native_batch_norm_legit.default: (5, 7),  # noqa: SLF001
}


def normalisation_of(
    module: fx.GraphModule, node: fx.Node
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """``(s, t)`` of a batch normalisation in evaluation, one value a channel; else ``None``."""
    if node.target not in _NORMS:
        return None
    training, eps_at = _NORMS[node.target]
    if training is not None and node.args[training]:
        return None
    weight, bias, mean, variance = (
        None if argument is None else constant_of(module, argument) for argument in node.args[1:5]
    )
    if mean is None or variance is None:
        return None
    if (node.args[1] is not None and weight is None) or (node.args[2] is not None and bias is None):
        return None
    eps = node.args[eps_at]
    scale = torch.rsqrt(variance.double() + float(eps))  # type: ignore[arg-type]
    scale = scale if weight is None else scale * weight.double()
    shift = -mean.double() * scale
    shift = shift if bias is None else shift + bias.double()
    return scale, shift


def normalised_value(node: fx.Node) -> fx.Node | None:
    """The node whose value is the normalised tensor (the native forms return a tuple)."""
    if node.target is aten.batch_norm.default:
        return node
    users = list(node.users)
    if all(u.target is operator.getitem for u in users):
        first = [u for u in users if u.args[1] == 0]
        if len(first) == 1 and all(not u.users for u in users if u is not first[0]):
            return first[0]
    return None


def fold_batch_norms(module: fx.GraphModule) -> int:
    """Folds every batch normalisation that follows a convolution or a linear layer.

    The module's graph is rewritten in place; returns how many were folded.
    """
    count = 0
    for node in list(module.graph.nodes):
        constants = normalisation_of(module, node) if node.op == "call_function" else None
        layer = node.args[0] if constants else None
        value = normalised_value(node) if constants else None
        if constants is None or value is None or not isinstance(layer, fx.Node):
            continue
        if layer.target not in _LAYERS or len(layer.users) != 1:
            continue
        if layer.target is aten.convolution.default and layer.args[6]:
            continue  # transposed: output channels are elsewhere in the weight
        if layer.target is aten.linear.default and layer.meta["val"].dim() != 2:
            continue  # BatchNorm1d on [N, C, L] normalises another axis than the linear layer's
        count += _fold(module, layer, value, constants)
    if count:
        module.graph.eliminate_dead_code()
        module.recompile()
    return count


def _fold(
    module: fx.GraphModule,
    layer: fx.Node,
    value: fx.Node,
    constants: tuple[torch.Tensor, torch.Tensor],
) -> bool:
    weight = constant_of(module, layer.args[1])
    old_bias = layer.args[2] if len(layer.args) > 2 else layer.kwargs.get("bias")
    bias = None if old_bias is None else constant_of(module, old_bias)
    if weight is None or (old_bias is not None and bias is None):
        return False
    scale, shift = constants
    shape = [1] * weight.dim()
    shape[_LAYERS[layer.target]] = -1
    folded_weight = (weight.double() * scale.reshape(shape)).to(weight.dtype)
    folded_bias = (shift if bias is None else bias.double() * scale + shift).to(weight.dtype)
    name = str(layer.args[1].target) if isinstance(layer.args[1], fx.Node) else layer.name
    arguments = list(layer.args)
    arguments[1] = new_constant(module, f"{name}_folded", folded_weight, layer)
    bias_node = new_constant(module, f"{name}_folded_bias", folded_bias, layer)
    arguments[2:3] = [bias_node]
    layer.args = tuple(arguments)
    layer.kwargs = {k: v for k, v in layer.kwargs.items() if k != "bias"}
    value.replace_all_uses_with(layer)
    return True
