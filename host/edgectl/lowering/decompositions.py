"""Operators rewritten in terms of others while the program is decomposed to core ATen.

Two kinds: those whose stock lowering computes in float64, which TOSA has not (normalisations,
attention), and those whose stock decomposition is slower than it need be. Resizing and adaptive
pooling are kept whole here; they are legalised on the graph, where constants can be added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import get_decompositions

__all__ = ["decomposition_table"]

aten = torch.ops.aten
Tensor = torch.Tensor


def decomposition_table() -> Any:
    """torch.export's own table with ours on top."""
    table = torch.export.default_decompositions()
    table.update(get_decompositions(_STOCK))  # type: ignore[no-untyped-call]
    for target, function in _OURS.items():
        table[target] = function
    for target in KEPT:
        if target in table:
            del table[target]
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


def variance(
    x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Tensor:
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


def instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """BatchNorm by the statistics of this very input, which is how InstanceNorm is spelled."""
    del training, momentum
    axes = [0, *range(2, x.dim())]
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    rstd = torch.rsqrt((centred * centred).mean(axes, keepdim=True) + eps)
    y = centred * rstd
    shape = [1, x.shape[1], *([1] * (x.dim() - 2))]
    if weight is not None:
        y = y * weight.reshape(shape)
    if bias is not None:
        y = y + bias.reshape(shape)
    return y, mean.reshape(x.shape[1]), rstd.reshape(x.shape[1])


def erfc(x: Tensor) -> Tensor:
    """1 - erf(x)."""
    return 1.0 - torch.erf(x)


def signbit(x: Tensor) -> Tensor:
    """Whether the sign bit is set; of a negative zero it shows in the reciprocal."""
    if not x.dtype.is_floating_point:
        return x < 0
    return (x < 0) | (torch.reciprocal(x) == -math.inf)


def copysign(x: Tensor, y: Tensor) -> Tensor:
    """|x| with the sign of y."""
    size = x.abs()
    return torch.where(signbit(y), -size, size)


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """sqrt(x^2 + y^2), scaled by the larger of the two so that nothing overflows."""
    x, y = x.abs(), y.abs()
    large, small = torch.maximum(x, y), torch.minimum(x, y)
    ratio = small / torch.where(large > 0, large, torch.ones_like(large))
    return large * torch.sqrt(1.0 + ratio * ratio)


def distances(x: Tensor, y: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """Distances of all pairs of rows, by differences (not by products, which cancel)."""
    del compute_mode
    gaps = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 0:
        return (gaps != 0).to(gaps.dtype).sum(-1)
    if p == 1:
        return gaps.sum(-1)
    if p == 2:
        return torch.sqrt((gaps * gaps).sum(-1))
    if math.isinf(p):
        return gaps.amax(-1)
    return torch.pow(torch.pow(gaps, p).sum(-1), 1.0 / p)


def median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower median and its place, by sorting; a row with not-a-number gives just that."""
    place = (x.shape[dim] - 1) // 2
    values, indices = torch.sort(x, dim)
    value, index = values.narrow(dim, place, 1), indices.narrow(dim, place, 1)
    if x.dtype.is_floating_point:
        wrong = (x != x).any(dim, keepdim=True)
        value = torch.where(wrong, torch.full_like(value, math.nan), value)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


def power_number(x: Tensor, n: float) -> Tensor:
    """Small whole powers by multiplication, roots as roots (see legalisation/powers.py)."""
    if not isinstance(n, int | float):
        return NotImplemented
    if n == int(n) and abs(n) <= 8:
        if n == 0:
            return torch.ones_like(x)
        if not x.dtype.is_floating_point and (n < 0 or isinstance(n, float)):
            return NotImplemented  # type: ignore[no-any-return]
        base, result, left = x, None, abs(int(n))
        while left:
            if left & 1:
                result = base if result is None else result * base
            left >>= 1
            base = base * base if left else base
        if result is None:
            return NotImplemented  # type: ignore[no-any-return]
        if n == 1:
            return result.clone()
        return result if n > 0 else torch.reciprocal(result)
    if not x.dtype.is_floating_point:
        return NotImplemented  # type: ignore[no-any-return]
    if n == 0.5:
        return torch.sqrt(x)
    if n == -0.5:
        return torch.rsqrt(x)
    return NotImplemented  # type: ignore[no-any-return]


def batch_statistics(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """BatchNorm that normalises by this batch and moves its running statistics."""
    if not training:
        return NotImplemented  # type: ignore[no-any-return]
    axes = [0, *range(2, x.dim())]
    count = x.numel() // x.shape[1]
    y, mean, rstd = instance_norm(x, weight, bias, True, momentum, eps)
    centred = x - x.mean(axes, keepdim=True)
    spread = (centred * centred).sum(axes) * (1.0 / max(count - 1, 1))
    moved = running_mean * (1 - momentum) + mean * momentum
    widened = running_var * (1 - momentum) + spread * momentum
    return y, mean, rstd, moved, widened


# Legalised later (legalisation/resizing.py).
KEPT = (
    aten.upsample_linear1d.vec,
    aten.upsample_bilinear2d.vec,
    aten.upsample_trilinear3d.vec,
    aten.upsample_bicubic2d.vec,
    aten._upsample_bilinear2d_aa.vec,  # noqa: SLF001
    aten._upsample_bicubic2d_aa.vec,  # noqa: SLF001
    aten.upsample_nearest1d.vec,
    aten.upsample_nearest2d.vec,
    aten.upsample_nearest3d.vec,
    aten._upsample_nearest_exact1d.vec,  # noqa: SLF001
    aten._upsample_nearest_exact2d.vec,  # noqa: SLF001
    aten._upsample_nearest_exact3d.vec,  # noqa: SLF001
    aten._adaptive_avg_pool2d.default,  # noqa: SLF001
    aten._adaptive_avg_pool3d.default,  # noqa: SLF001
    aten.adaptive_avg_pool1d.default,
)

# torch has these decompositions but does not apply them by itself.
_STOCK = [aten.grid_sampler_2d, aten.logaddexp, aten.xlogy, aten.special_xlog1py]

_OURS: dict[Any, Callable[..., Any]] = {
    aten.native_layer_norm.default: layer_norm,
    aten.native_group_norm.default: group_norm,
    aten.var.correction: variance,
    aten.var_mean.correction: variance_mean,
    aten.scaled_dot_product_attention.default: attention,
    aten.hardswish.default: hardswish,
    aten._softmax.default: softmax,  # noqa: SLF001
    aten._log_softmax.default: log_softmax,  # noqa: SLF001
    aten._native_batch_norm_legit.no_stats: instance_norm,  # noqa: SLF001
    aten.erfc.default: erfc,
    aten.hypot.default: hypot,
    aten.signbit.default: signbit,
    aten.copysign.Tensor: copysign,
    aten._cdist_forward.default: distances,  # noqa: SLF001
    aten.median.dim: median,
    aten.pow.Tensor_Scalar: power_number,
    aten._native_batch_norm_legit_functional.default: batch_statistics,  # noqa: SLF001
}
