"""Operators rewritten in terms of others while the program is decomposed to core ATen.

Three kinds: those whose stock lowering computes in float64 or int64, which TOSA has not
(normalisations, attention, resizing), those that TOSA has not at all and that are linear along
each axis (bilinear, bicubic, uneven adaptive pooling: one constant matrix an axis), and those
where the stock decomposition is slower than it need be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

__all__ = ["decomposition_table"]

aten = torch.ops.aten
Tensor = torch.Tensor


def decomposition_table() -> Any:
    """torch.export's own table with ours on top."""
    table = torch.export.default_decompositions()
    for target, function in _OURS.items():
        table[target] = function
    return table


def layer_norm(
    x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """LayerNorm in float32 throughout; returns (y, mean, rstd) like the native operator."""
    axes = list(range(x.dim() - len(shape), x.dim()))
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    rstd = torch.rsqrt((centred * centred).mean(axes, keepdim=True) + eps)
    y = centred * rstd
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y, mean, rstd


def group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n: int,
    channels: int,
    inner: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """GroupNorm over ``channels / groups * inner`` elements at a time."""
    flat = x.reshape(n, groups, channels // groups * inner)
    mean = flat.mean(2, keepdim=True)
    centred = flat - mean
    rstd = torch.rsqrt((centred * centred).mean(2, keepdim=True) + eps)
    y = (centred * rstd).reshape(x.shape)
    shape = [1, channels, *([1] * (x.dim() - 2))]
    if weight is not None:
        y = y * weight.reshape(shape)
    if bias is not None:
        y = y + bias.reshape(shape)
    return y, mean.reshape(n, groups), rstd.reshape(n, groups)


def variance(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    """Variance by two passes over float32."""
    axes = list(range(x.dim())) if dim is None or len(dim) == 0 else [d % x.dim() for d in dim]
    count = math.prod(x.shape[d] for d in axes)
    centred = x - x.mean(axes, keepdim=True)
    divisor = max(count - (1 if correction is None else correction), 0)
    scale = 1.0 / divisor if divisor else math.nan
    return (centred * centred).sum(axes, keepdim=keepdim) * scale


def variance_mean(
    x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """`variance` and the mean."""
    axes = list(range(x.dim())) if dim is None or len(dim) == 0 else list(dim)
    return variance(x, dim, correction=correction, keepdim=keepdim), x.mean(axes, keepdim=keepdim)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(Q K^T * scale + mask) V; a row whose keys are all masked gives zeros, as in eager."""
    del dropout_p  # the program is in evaluation mode
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    scores = torch.matmul(query * factor, key.transpose(-2, -1))
    if is_causal:
        ones = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool)
        attn_mask = ones.tril()
    if attn_mask is None:
        return torch.matmul(torch.softmax(scores, -1), value)
    if attn_mask.dtype == torch.bool:
        # exp of anything this far below the row's maximum is 0, and no infinity is subtracted
        # from another where a row is masked whole.
        kept = attn_mask.expand(scores.shape) if attn_mask.shape != scores.shape else attn_mask
        scores = torch.where(kept, scores, torch.full_like(scores, -1e30))
        weights = torch.softmax(scores, -1) * kept.to(scores.dtype)
    else:
        floor = torch.clamp(attn_mask, min=-1e30)
        weights = torch.softmax(scores + floor, -1)
        alive = (attn_mask > -1e30).to(scores.dtype).amax(-1, keepdim=True)
        weights = weights * alive
    return torch.matmul(weights, value)


def _axis_matrix(size: int, resize: Callable[[Tensor], Tensor]) -> Tensor:
    """What ``resize`` does along one axis of ``size`` elements, as a matrix [out, size].

    A linear map is known by what it does to unit vectors; eager PyTorch says it itself, phase,
    clamping at borders and all.
    """
    with torch.utils._python_dispatch._disable_current_modes():  # noqa: SLF001
        units = torch.eye(size).reshape(size, 1, size)
        return resize(units).reshape(size, -1).t().contiguous()


def _apply_axes(x: Tensor, matrices: list[Tensor]) -> Tensor:
    """One matrix per trailing spatial axis; the axis that shrinks most goes first."""
    axes = range(x.dim() - len(matrices), x.dim())
    pairs = sorted(zip(axes, matrices, strict=True), key=lambda p: p[1].shape[0] / p[1].shape[1])
    for axis, matrix in pairs:
        if torch.equal(matrix, torch.eye(matrix.shape[1])[: matrix.shape[0]]) and (
            matrix.shape[0] == matrix.shape[1]
        ):
            continue
        moved = x if axis == x.dim() - 1 else x.transpose(axis, -1)
        y = torch.matmul(moved, matrix.t().to(x.dtype))
        x = y if axis == x.dim() - 1 else y.transpose(axis, -1)
    return x


def _sizes(x: Tensor, output_size: Any, scale_factors: Any, axes: int) -> list[int]:
    if output_size is not None:
        return [int(s) for s in output_size]
    inner = x.shape[-axes:]
    return [int(math.floor(n * f)) for n, f in zip(inner, scale_factors, strict=True)]


def _linear_axis(n: int, out: int, align_corners: bool, factor: float | None) -> Tensor:
    return _axis_matrix(
        n, lambda u: aten.upsample_linear1d.default(u, [out], align_corners, factor)
    )


def _cubic_axis(n: int, out: int, align_corners: bool, factor: float | None) -> Tensor:
    def resize(units: Tensor) -> Tensor:
        tall = units.reshape(n, 1, n, 1).expand(n, 1, n, 1)
        return aten.upsample_bicubic2d.default(tall, [out, 1], align_corners, factor, None)

    return _axis_matrix(n, resize)


def _resize(axes: int, axis_matrix: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def function(x: Tensor, output_size: Any, align_corners: bool, scale_factors: Any) -> Tensor:
        sizes = _sizes(x, output_size, scale_factors, axes)
        factors = scale_factors if scale_factors is not None else [None] * axes
        matrices = [
            axis_matrix(n, out, align_corners, f)
            for n, out, f in zip(x.shape[-axes:], sizes, factors, strict=True)
        ]
        return _apply_axes(x, matrices)

    return function


def _nearest(axes: int, exact: bool) -> Callable[..., Tensor]:
    def function(x: Tensor, output_size: Any, scale_factors: Any) -> Tensor:
        sizes = _sizes(x, output_size, scale_factors, axes)
        factors = scale_factors if scale_factors is not None else [None] * axes
        for axis, (out, factor) in enumerate(zip(sizes, factors, strict=True), x.dim() - axes):
            x = _nearest_axis(x, axis, out, factor, exact)
        return x

    return function


def _nearest_axis(x: Tensor, axis: int, out: int, factor: float | None, exact: bool) -> Tensor:
    n = x.shape[axis]
    operator = aten._upsample_nearest_exact1d.default if exact else aten.upsample_nearest1d.default  # noqa: SLF001
    with torch.utils._python_dispatch._disable_current_modes():  # noqa: SLF001
        positions = torch.arange(n, dtype=torch.float32).reshape(1, 1, n)
        index = operator(positions, [out], factor).reshape(-1).to(torch.int64)
        times = out // n if n else 0
        whole = times * n == out and torch.equal(index, torch.arange(n).repeat_interleave(times))
        step = n // out if out else 0
        first = int(index[0]) if out else 0
        strided = step * out == n and torch.equal(index, torch.arange(out) * step + first)
    if whole and times == 1:
        return x
    if whole:  # a broadcast and a reshape instead of a gather
        shape = [*x.shape[: axis + 1], times, *x.shape[axis + 1 :]]
        merged = [*x.shape[:axis], out, *x.shape[axis + 1 :]]
        return x.unsqueeze(axis + 1).expand(shape).reshape(merged)
    if strided:
        return aten.slice.Tensor(x, axis, first, n, step)
    return torch.index_select(x, axis, index)


def _adaptive_average(axes: int) -> Callable[..., Tensor]:
    pools = {
        1: lambda u, out: F.adaptive_avg_pool1d(u, out),
    }

    def function(x: Tensor, output_size: Any) -> Tensor:
        inner, outs = x.shape[-axes:], [int(s) for s in output_size]
        if all(out == 1 for out in outs):
            return x.mean(list(range(x.dim() - axes, x.dim())), keepdim=True)
        if axes == 2 and all(n % out == 0 for n, out in zip(inner, outs, strict=True)):
            kernel = [n // out for n, out in zip(inner, outs, strict=True)]
            return aten.avg_pool2d.default(x, kernel, kernel)
        matrices = [
            _axis_matrix(n, lambda u, out=out: pools[1](u, out))  # type: ignore[misc]
            for n, out in zip(inner, outs, strict=True)
        ]
        return _apply_axes(x, matrices)

    return function


def hardswish(x: Tensor) -> Tensor:
    """x * relu6(x + 3) / 6, which stays three vector operations."""
    return x * torch.clamp(x + 3.0, 0.0, 6.0) * (1.0 / 6.0)


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """exp(x - max) / sum, in float32."""
    if half_to_float:
        x = x.float()
    if x.dim() == 0 or x.shape[dim] == 0:
        return torch.ones_like(x)
    exponent = torch.exp(x - x.amax(dim, keepdim=True))
    return exponent * (1.0 / exponent.sum(dim, keepdim=True))


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """x - max - log(sum(exp(x - max))), in float32."""
    if half_to_float:
        x = x.float()
    centred = x - x.amax(dim, keepdim=True)
    return centred - torch.log(torch.exp(centred).sum(dim, keepdim=True))


_OURS: dict[Any, Callable[..., Any]] = {
    aten.native_layer_norm.default: layer_norm,
    aten.native_group_norm.default: group_norm,
    aten.var.correction: variance,
    aten.var_mean.correction: variance_mean,
    aten.scaled_dot_product_attention.default: attention,
    aten.upsample_linear1d.vec: _resize(1, _linear_axis),
    aten.upsample_bilinear2d.vec: _resize(2, _linear_axis),
    aten.upsample_trilinear3d.vec: _resize(3, _linear_axis),
    aten.upsample_bicubic2d.vec: _resize(2, _cubic_axis),
    aten.upsample_nearest1d.vec: _nearest(1, exact=False),
    aten.upsample_nearest2d.vec: _nearest(2, exact=False),
    aten.upsample_nearest3d.vec: _nearest(3, exact=False),
    aten._upsample_nearest_exact1d.vec: _nearest(1, exact=True),  # noqa: SLF001
    aten._upsample_nearest_exact2d.vec: _nearest(2, exact=True),  # noqa: SLF001
    aten._upsample_nearest_exact3d.vec: _nearest(3, exact=True),  # noqa: SLF001
    aten._adaptive_avg_pool2d.default: _adaptive_average(2),  # noqa: SLF001
    aten._adaptive_avg_pool3d.default: _adaptive_average(3),  # noqa: SLF001
    aten.adaptive_avg_pool1d.default: _adaptive_average(1),
    aten.hardswish.default: hardswish,
    aten._softmax.default: softmax,  # noqa: SLF001
    aten._log_softmax.default: log_softmax,  # noqa: SLF001
}
