"""What integer arithmetic can do, by operator.

    PRODUCT   multiply-accumulate: convolutions, linear layers, matrix products
    COMBINE   two values added, subtracted or multiplied
    AVERAGE   pooling and means
    TABLE     a function of one int8 value: 256 answers, looked up
    MOVE      values change place and nothing else; input and output share scale and zero point
    JOIN      concatenation: like MOVE, with inputs that may need another scale first
    GATHER    rows of a constant table (embedding)

Anything else is float32 between a dequantize and a quantize.
"""

from __future__ import annotations

import operator
from enum import StrEnum
from typing import Any

import torch
from torch import fx

__all__ = ["Kind", "is_clamp", "is_float", "kind_of", "macs_of", "value_inputs", "weight_of"]

aten = torch.ops.aten


class Kind(StrEnum):
    """What an operator does, as far as integer arithmetic is concerned."""

    PRODUCT = "product"
    COMBINE = "combine"
    AVERAGE = "average"
    TABLE = "table"
    MOVE = "move"
    JOIN = "join"
    GATHER = "gather"


CONVOLUTIONS = {aten.conv1d.default, aten.conv2d.default}
TRANSPOSED = {aten.conv_transpose1d.default, aten.conv_transpose2d.input}
_FLOAT_ONLY = {aten.conv3d.default, aten.convolution.default}
LINEAR = {aten.linear.default}
MATMUL = {aten.matmul.default, aten.bmm.default, aten.mm.default}
_COMBINE = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor}
_AVERAGE = {aten.avg_pool2d.default, aten.mean.dim}
_TABLE = {
    aten.sigmoid.default,
    aten.tanh.default,
    aten.hardswish.default,
    aten.hardsigmoid.default,
    aten.silu.default,
    aten.gelu.default,
    aten.exp.default,
    aten.elu.default,
    aten.leaky_relu.default,
    aten.mish.default,
    aten.softplus.default,
    aten.neg.default,
    aten.abs.default,
    aten.square.default,
    aten.relu.default,
    aten.relu6.default,
    aten.hardtanh.default,
    aten.clamp.default,
    aten.clamp_min.default,
    aten.pow.Tensor_Scalar,
}
_MOVE = {
    aten.view.default,
    aten._unsafe_view.default,  # noqa: SLF001
    aten.reshape.default,
    aten.flatten.using_ints,
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.slice.Tensor,
    aten.select.int,
    aten.expand.default,
    aten.max_pool2d.default,
    aten.max_pool1d.default,
    aten.constant_pad_nd.default,
    aten.pad.default,
    aten.pixel_shuffle.default,
    aten.pixel_unshuffle.default,
    aten.clone.default,
    aten.flip.default,
    aten.upsample_nearest2d.vec,
    aten.unbind.int,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.chunk.default,
    aten.channel_shuffle.default,
}
_CLAMPS = {
    aten.relu.default,
    aten.relu6.default,
    aten.hardtanh.default,
    aten.clamp.default,
    aten.clamp_min.default,
}


def is_float(value: Any) -> bool:
    """True for a float32 tensor (or fake tensor)."""
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _all_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else [value]
    return bool(values) and all(is_float(v) for v in values)


def kind_of(node: fx.Node) -> Kind | None:
    """The kind of ``node``, or ``None`` when only floating point can compute it."""
    if node.op != "call_function":
        return None
    target = node.target
    if target is operator.getitem:
        source: Any = node.args[0]
        return Kind.MOVE if source.target in _MOVE and _all_float(node) else None
    if not _all_float(node):
        return None
    if target is aten.embedding.default:
        return Kind.GATHER
    if target in CONVOLUTIONS | TRANSPOSED | LINEAR | MATMUL:
        return Kind.PRODUCT if _product_supported(node) else None
    if target in _COMBINE:
        return _kind_of_combination(node)
    if target is aten.cat.default:
        return Kind.JOIN
    if target in _AVERAGE:
        return Kind.AVERAGE if _average_supported(node) else None
    if target in _TABLE:
        return Kind.TABLE
    if target in _MOVE:
        return Kind.MOVE if _move_supported(node) else None
    return None


def _average_supported(node: fx.Node) -> bool:
    if node.target is aten.mean.dim:
        return node.kwargs.get("dtype") is None and bool(node.args[1])
    arguments = list(node.args) + [None] * (7 - len(node.args))
    padding: Any = arguments[3] or [0, 0]
    counts_padding = arguments[5] is not False
    if arguments[4] or arguments[6] is not None:
        return False  # ceil_mode windows reach over the edge; divisor_override is rare
    return counts_padding or not any(padding)


def _move_supported(node: fx.Node) -> bool:
    if node.target is aten.pad.default:
        mode = node.args[2] if len(node.args) > 2 else "constant"
        return mode == "constant"
    return True


def _kind_of_combination(node: fx.Node) -> Kind | None:
    if "alpha" in node.kwargs and node.kwargs["alpha"] != 1:
        return None
    first, second = node.args[0], node.args[1]
    if isinstance(first, fx.Node) and isinstance(second, fx.Node):
        both = is_float(first.meta.get("val")) and is_float(second.meta.get("val"))
        return Kind.COMBINE if both else None
    return Kind.TABLE if isinstance(second, int | float) else None


def _product_supported(node: fx.Node) -> bool:
    if node.target in MATMUL:
        return all(isinstance(a, fx.Node) and a.meta["val"].dim() >= 2 for a in node.args[:2])
    if node.target in TRANSPOSED:
        groups = node.args[6] if len(node.args) > 6 else 1
        dilation: Any = node.args[7] if len(node.args) > 7 else [1]
        return bool(groups == 1) and all(int(d) == 1 for d in dilation)
    return True


def is_clamp(node: fx.Node) -> bool:
    """True for relu, relu6 and clamps with constant limits: they fuse with what feeds them."""
    if node.target not in _CLAMPS or not _all_float(node):
        return False
    return all(a is None or isinstance(a, int | float) for a in node.args[1:])


def weight_of(node: fx.Node) -> tuple[fx.Node, int | None] | None:
    """The constant weight of a product and the axis of its output channels; ``None`` if none."""
    if node.target in MATMUL:
        second = node.args[1]
        if isinstance(second, fx.Node) and second.op == "get_attr":
            return second, second.meta["val"].dim() - 1
        return None
    weight = node.args[1]
    if not isinstance(weight, fx.Node):
        return None
    return weight, 1 if node.target in TRANSPOSED else 0


def value_inputs(node: fx.Node, kind: Kind) -> list[fx.Node]:
    """The inputs that must be int8 (not weights, not biases, not indices)."""
    if kind is Kind.GATHER:
        return []
    if kind is Kind.JOIN:
        return list(node.args[0])  # type: ignore[arg-type]
    if kind is Kind.COMBINE or (node.target in MATMUL and weight_of(node) is None):
        return [node.args[0], node.args[1]]  # type: ignore[list-item]
    return [node.args[0]]  # type: ignore[list-item]


def macs_of(node: fx.Node) -> int:
    """Multiply-accumulates of one call of a product; 0 for everything else."""
    if node.op != "call_function":
        return 0
    target = node.target
    if target in CONVOLUTIONS | _FLOAT_ONLY:
        weight = node.args[1].meta["val"]  # type: ignore[union-attr]
        return int(node.meta["val"].numel() * weight[0].numel())
    if target in TRANSPOSED:
        weight = node.args[1].meta["val"]  # type: ignore[union-attr]
        return int(node.args[0].meta["val"].numel() * weight[0].numel())  # type: ignore[union-attr]
    if target in LINEAR | MATMUL:
        depth = node.args[0].meta["val"].shape[-1]  # type: ignore[union-attr]
        return int(node.meta["val"].numel() * depth)
    return 0
