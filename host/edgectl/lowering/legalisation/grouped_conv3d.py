"""Grouped 3-D and grouped transposed convolutions: one convolution a group, concatenated."""

from __future__ import annotations

import torch
from torch import fx

from edgectl.graph import constant_of, new_constant
from edgectl.lowering.legalisation.emit import emit, replace

__all__ = ["split_grouped_conv3d"]

aten = torch.ops.aten


def split_grouped_conv3d(module: fx.GraphModule) -> int:
    """Splits where torch-mlir has no grouped form: 3-D, and transposed in any rank."""
    count = 0
    for node in list(module.graph.nodes):
        if node.target is not aten.convolution.default:
            continue
        x, weight_node, bias_node, stride, padding, dilation, transposed, extra, groups = node.args
        if groups == 1 or not (transposed or len(stride) == 3):
            continue
        weight = constant_of(module, weight_node)
        bias = None if bias_node is None else constant_of(module, bias_node)
        if weight is None or (bias_node is not None and bias is None):
            continue
        width = x.meta["val"].shape[1] // groups
        weights = weight.chunk(groups, 0)
        biases = [None] * groups if bias is None else bias.chunk(groups, 0)
        parts = []
        for index in range(groups):
            piece = emit(node, aten.slice.Tensor, x, 1, index * width, (index + 1) * width)
            w = new_constant(module, f"{node.name}_weight_{index}", weights[index], node)
            b = biases[index]
            b_node = (
                None if b is None else new_constant(module, f"{node.name}_bias_{index}", b, node)
            )
            parts.append(
                emit(
                    node,
                    aten.convolution.default,
                    piece,
                    w,
                    b_node,
                    stride,
                    padding,
                    dilation,
                    transposed,
                    extra,
                    1,
                )
            )
        replace(node, emit(node, aten.cat.default, parts, 1))
        count += 1
    return count
