"""ONNX operators as PyTorch: layers, and moving of data."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from edgectl.errors import UnsupportedModelError
from edgectl.sources.onnx_operators import (
    Operation,
    Static,
    axes_of,
    ints,
    numbers,
    operator,
    optional,
    tensor,
)

Tensor = torch.Tensor


def unsupported(op: Operation, what: str) -> UnsupportedModelError:
    """The error for a node with an option that is not read here."""
    return UnsupportedModelError(
        f"ONNX node {op.name!r} ({op.kind}) {what}, which edgectl does not read.",
        next_step="Export the model from PyTorch with torch.export.save instead.",
    )


def spatial_pads(op: Operation, x: Tensor, kernel: list[int]) -> list[int]:
    """Pads of a convolution or pooling as [begin..., end...]."""
    rank = x.dim() - 2
    mode = op.get("auto_pad", "NOTSET")
    strides = op.get("strides") or [1] * rank
    dilations = op.get("dilations") or [1] * rank
    if mode in ("NOTSET", ""):
        return list(op.get("pads") or [0] * (2 * rank))
    if mode == "VALID":
        return [0] * (2 * rank)
    begins, ends = [], []
    for size, width, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (width - 1) * dilation + 1 - size)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return begins + ends


def padded(x: Tensor, pads: list[int], value: float) -> tuple[Tensor, list[int]]:
    """``x`` and the symmetric pads that the layer itself can apply."""
    half = len(pads) // 2
    if pads[:half] == pads[half:]:
        return x, pads[:half]
    flat: list[int] = []
    for axis in reversed(range(half)):
        flat += [pads[axis], pads[half + axis]]
    return F.pad(x, flat, value=value), [0] * half


@operator("Conv")
def convolution(op: Operation, x: Any, weight: Any, bias: Any = None) -> Any:
    x, weight = tensor(x), tensor(weight)
    rank = x.dim() - 2
    x, pads = padded(x, spatial_pads(op, x, list(weight.shape[2:])), 0.0)
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    return function(
        x,
        weight,
        optional(bias),
        op.get("strides") or [1] * rank,
        pads,
        op.get("dilations") or [1] * rank,
        op.get("group", 1),
    )


@operator("ConvTranspose")
def transposed_convolution(op: Operation, x: Any, weight: Any, bias: Any = None) -> Any:
    x = tensor(x)
    rank = x.dim() - 2
    pads = list(op.get("pads") or [0] * (2 * rank))
    if op.get("auto_pad", "NOTSET") not in ("NOTSET", "") or op.get("output_shape"):
        raise unsupported(op, "names its output's shape")
    if pads[:rank] != pads[rank:]:
        raise unsupported(op, "has different pads on both sides")
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    return function(
        x,
        tensor(weight),
        optional(bias),
        op.get("strides") or [1] * rank,
        pads[:rank],
        op.get("output_padding") or [0] * rank,
        op.get("group", 1),
        op.get("dilations") or [1] * rank,
    )


@operator("MaxPool", "AveragePool")
def pool(op: Operation, x: Any) -> Any:
    x = tensor(x)
    rank, kernel = x.dim() - 2, list(op.get("kernel_shape"))
    if op.outputs > 1:
        raise unsupported(op, "returns indices")
    strides = op.get("strides") or [1] * rank
    ceil, pads = bool(op.get("ceil_mode", 0)), spatial_pads(op, x, kernel)
    if op.kind == "MaxPool":
        x, symmetric = padded(x, pads, float("-inf"))
        dilations = op.get("dilations") or [1] * rank
        function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
        return function(x, kernel, strides, symmetric, dilations, ceil)
    include = bool(op.get("count_include_pad", 0))
    if pads[:rank] != pads[rank:] and not include:
        raise unsupported(op, "has different pads on both sides that it does not count")
    x, symmetric = padded(x, pads, 0.0)
    average = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
    return average(x, kernel, strides, symmetric, ceil, include)


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(op: Operation, x: Any) -> Any:
    x = tensor(x)
    dims = list(range(2, x.dim()))
    return x.mean(dims, keepdim=True) if "Average" in op.kind else x.amax(dims, keepdim=True)


@operator("BatchNormalization")
def batch_norm(op: Operation, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    return F.batch_norm(
        tensor(x),
        tensor(mean),
        tensor(variance),
        tensor(scale),
        optional(bias),
        eps=op.get("epsilon", 1e-5),
    )


@operator("InstanceNormalization")
def instance_norm(op: Operation, x: Any, scale: Any, bias: Any) -> Any:
    return F.instance_norm(
        tensor(x), weight=tensor(scale), bias=optional(bias), eps=op.get("epsilon", 1e-5)
    )


@operator("LayerNormalization")
def layer_norm(op: Operation, x: Any, scale: Any, bias: Any = None) -> Any:
    x = tensor(x)
    if op.outputs > 1:
        raise unsupported(op, "returns mean and deviation")
    shape = x.shape[op.get("axis", -1) % x.dim() :]
    return F.layer_norm(x, shape, tensor(scale), optional(bias), op.get("epsilon", 1e-5))


@operator("GroupNormalization")
def group_norm(op: Operation, x: Any, scale: Any, bias: Any) -> Any:
    if op.opset < 21:
        raise unsupported(op, "scales per group (opset 18)")
    eps = op.get("epsilon", 1e-5)
    return F.group_norm(tensor(x), op.get("num_groups"), tensor(scale), optional(bias), eps)


@operator("Gemm")
def gemm(op: Operation, a: Any, b: Any, c: Any = None) -> Any:
    a = tensor(a).t() if op.get("transA", 0) else tensor(a)
    alpha, beta = op.get("alpha", 1.0), op.get("beta", 1.0)
    bias = optional(c)
    if alpha == 1.0 and op.get("transB", 0) and (bias is None or bias.dim() == 1) and beta == 1.0:
        return F.linear(a, tensor(b), bias)
    product = a @ (tensor(b).t() if op.get("transB", 0) else tensor(b))
    product = product if alpha == 1.0 else alpha * product
    return product if bias is None else product + (bias if beta == 1.0 else beta * bias)


@operator("MatMul")
def matmul(_op: Operation, a: Any, b: Any) -> Any:
    return torch.matmul(tensor(a), tensor(b))


@operator("Reshape")
def reshape(op: Operation, x: Any, shape: Any) -> Any:
    x = tensor(x)
    sizes = ints(op, shape)
    if not op.get("allowzero", 0):
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return x.reshape(sizes)


@operator("Flatten")
def flatten(op: Operation, x: Any) -> Any:
    x = tensor(x)
    axis = op.get("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    rows = 1
    for size in x.shape[:axis]:
        rows *= size
    return x.reshape(rows, -1)


@operator("Transpose")
def transpose(op: Operation, x: Any) -> Any:
    x = tensor(x)
    return x.permute(op.get("perm") or list(reversed(range(x.dim()))))


@operator("Squeeze")
def squeeze(op: Operation, x: Any, axes: Any = None) -> Any:
    x = tensor(x)
    dims = axes_of(op, axes)
    return x.squeeze() if dims is None else x.squeeze(dims)


@operator("Unsqueeze")
def unsqueeze(op: Operation, x: Any, axes: Any = None) -> Any:
    x = tensor(x)
    dims = axes_of(op, axes) or []
    rank = x.dim() + len(dims)
    for axis in sorted(axis % rank for axis in dims):
        x = x.unsqueeze(axis)
    return torch.as_tensor(x)


@operator("Concat")
def concatenate(op: Operation, *values: Any) -> Any:
    return torch.cat([tensor(value) for value in values], dim=op.get("axis"))


@operator("Split")
def split(op: Operation, x: Any, sizes: Any = None) -> Any:
    x = tensor(x)
    axis = op.get("axis", 0)
    given = op.get("split") if sizes is None else ints(op, sizes)
    if given is None:
        count = op.get("num_outputs") or op.outputs
        given = -(-x.shape[axis] // count)
    return torch.split(x, given, dim=axis)


@operator("Slice")
def slice_(
    op: Operation, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None
) -> Any:
    x = tensor(x)
    first = list(op.get("starts")) if starts is None else ints(op, starts)
    last = list(op.get("ends")) if ends is None else ints(op, ends)
    dims = axes_of(op, axes) or list(range(len(first)))
    strides = [1] * len(first) if steps is None else ints(op, steps)
    for axis, start, end, step in zip(dims, first, last, strides, strict=True):
        size = x.shape[axis]
        if step < 0:
            indices = list(range(size))[_bound(start, size) : _bound(end, size) : step]
            x = x.index_select(axis, torch.tensor(indices, dtype=torch.int64))
            continue
        index: list[Any] = [slice(None)] * x.dim()
        index[axis] = slice(max(-size, start), min(size, end), step)
        x = x[tuple(index)]
    return torch.as_tensor(x)


def _bound(value: int, size: int) -> int | None:
    """A bound of a backward slice; "before the first" has no number in Python."""
    if value < -size:
        return None
    return min(value, size)


@operator("Gather")
def gather(op: Operation, x: Any, indices: Any) -> Any:
    source, axis = tensor(x), op.get("axis", 0)
    if isinstance(indices, Static) and tensor(indices).dim() == 0:
        return source.select(axis, ints(op, indices)[0])
    index = tensor(indices).to(torch.int64)
    index = torch.where(index < 0, index + source.shape[axis], index)
    if axis == 0 and source.dim() == 2 and source.is_floating_point():
        return F.embedding(index, source)
    axis %= source.dim()
    flat = source.index_select(axis, index.reshape(-1))
    return flat.reshape(*source.shape[:axis], *index.shape, *source.shape[axis + 1 :])


@operator("GatherElements")
def gather_elements(op: Operation, x: Any, indices: Any) -> Any:
    x, index, axis = tensor(x), tensor(indices), op.get("axis", 0)
    return torch.gather(x, axis, torch.where(index < 0, index + x.shape[axis], index))


@operator("Expand")
def expand(op: Operation, x: Any, shape: Any) -> Any:
    x = tensor(x)
    return x.expand(
        torch.broadcast_shapes(  # type: ignore[no-untyped-call]
            x.shape, tuple(ints(op, shape))
        )
    )


@operator("Tile")
def tile(op: Operation, x: Any, repeats: Any) -> Any:
    return tensor(x).repeat(ints(op, repeats))


@operator("Pad")
def pad(op: Operation, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    x = tensor(x)
    widths = list(op.get("pads")) if pads is None else ints(op, pads)
    fill = op.get("value", 0.0) if value is None else numbers(op, value)[0]
    half = len(widths) // 2
    dims = axes_of(op, axes) if axes is not None else list(range(x.dim()))
    begin, end = dict(zip(dims or [], widths[:half], strict=True)), widths[half:]
    ends = dict(zip(dims or [], end, strict=True))
    flat: list[int] = []
    for axis in reversed(range(x.dim())):
        flat += [
            begin.get(axis, begin.get(axis - x.dim(), 0)),
            ends.get(axis, ends.get(axis - x.dim(), 0)),
        ]
    mode = op.get("mode", "constant")
    if mode == "constant":
        return F.pad(x, flat, value=fill)
    while flat[-2:] == [0, 0]:
        flat = flat[:-2]
    modes = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    if len(flat) // 2 == x.dim() - 1 or x.dim() < 3:
        return F.pad(x[None], flat, mode=modes[mode])[0]
    return F.pad(x, flat, mode=modes[mode])


@operator("Resize", "Upsample")
def resize(op: Operation, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    x = tensor(x)
    if op.kind == "Upsample" or op.opset < 11:
        scales, roi = (roi if roi is not None else op.get("scales")), None
    mode = op.get("mode", "nearest")
    coordinates = op.get("coordinate_transformation_mode", "half_pixel")
    if op.opset < 11:
        coordinates = "asymmetric"
    if sizes is not None:
        target = ints(op, sizes)
    else:
        factors = numbers(op, scales)
        target = [int(size * factor) for size, factor in zip(x.shape, factors, strict=True)]
    if list(target[:2]) != list(x.shape[:2]):
        raise unsupported(op, "resizes batch or channels")
    wanted = target[2:]
    if mode == "nearest":
        whole = all(t % s == 0 for t, s in zip(wanted, x.shape[2:], strict=True))
        rounding = op.get("nearest_mode", "round_prefer_floor")
        if whole and (rounding == "floor" or coordinates == "half_pixel"):
            return F.interpolate(x, size=wanted, mode="nearest")
        if coordinates == "asymmetric" and rounding == "floor":
            return F.interpolate(x, size=wanted, mode="nearest")
        raise unsupported(op, f"takes the nearest pixel by {coordinates}/{rounding}")
    if coordinates not in ("half_pixel", "align_corners", "pytorch_half_pixel"):
        raise unsupported(op, f"interpolates by {coordinates}")
    modes = {"linear": ("linear", "bilinear", "trilinear")[x.dim() - 3], "cubic": "bicubic"}
    return F.interpolate(
        x, size=wanted, mode=modes[mode], align_corners=coordinates == "align_corners"
    )


@operator("DepthToSpace")
def depth_to_space(op: Operation, x: Any) -> Any:
    x, block = tensor(x), op.get("blocksize")
    if op.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, block)
    batch, channels, height, width = x.shape
    x = x.reshape(batch, block, block, channels // block**2, height, width)
    return x.permute(0, 3, 4, 1, 5, 2).reshape(batch, -1, height * block, width * block)


@operator("SpaceToDepth")
def space_to_depth(op: Operation, x: Any) -> Any:
    x, block = tensor(x), op.get("blocksize")
    batch, channels, height, width = x.shape
    x = x.reshape(batch, channels, height // block, block, width // block, block)
    return x.permute(0, 3, 5, 1, 2, 4).reshape(batch, -1, height // block, width // block)


@operator("LSTM", "GRU")
def recurrent(
    op: Operation,
    x: Any,
    weights: Any,
    recurrence: Any,
    bias: Any = None,
    lengths: Any = None,
    hidden: Any = None,
    cell: Any = None,
    peepholes: Any = None,
) -> Any:
    x, weights, recurrence = tensor(x), tensor(weights), tensor(recurrence)
    both = op.get("direction", "forward") == "bidirectional"
    usual = ["Sigmoid", "Tanh", "Tanh"] if op.kind == "LSTM" else ["Sigmoid", "Tanh"]
    special = op.get("activations") or usual * (2 if both else 1)
    if op.get("layout", 0) or lengths is not None or peepholes is not None:
        raise unsupported(op, "has sequence lengths, peepholes or another layout")
    if op.get("direction", "forward") == "reverse" or special != usual * (2 if both else 1):
        raise unsupported(op, "runs backwards, or with other activations")
    if op.kind == "GRU" and not op.get("linear_before_reset", 0):
        raise unsupported(op, "resets before the linear step")
    # ONNX orders the gates i, o, f, c and z, r, h; torch i, f, g, o and r, z, n.
    order = [0, 2, 3, 1] if op.kind == "LSTM" else [1, 0, 2]
    count, directions, size = len(order), 2 if both else 1, recurrence.shape[-1]
    flat: list[Tensor] = []
    for direction in range(directions):
        parts = [weights[direction], recurrence[direction]]
        if bias is not None:
            given = tensor(bias)[direction]
            parts += [given[: count * size], given[count * size :]]
        flat += [torch.cat([part.chunk(count)[gate] for gate in order]) for part in parts]
    shape = (directions, x.shape[1], size)
    start = x.new_zeros(shape) if hidden is None else tensor(hidden)
    if op.kind == "LSTM":
        first = x.new_zeros(shape) if cell is None else tensor(cell)
        output, *states = torch.lstm(
            x, [start, first], flat, bias is not None, 1, 0.0, False, both, False
        )
    else:
        output, *states = torch.gru(x, start, flat, bias is not None, 1, 0.0, False, both, False)
    output = output.reshape(*output.shape[:2], directions, size).permute(0, 2, 1, 3)
    return (output, *states)
