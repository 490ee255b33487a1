"""Small models around each kind of fault in the bug log: what breaks one breaks its siblings.

``SIBLINGS[name] = (module, inputs)``; the name begins with the report that it is next to.
`DYNAMIC` has the ``dynamic_shapes`` of some. Inputs and weights come from a fixed seed.
"""

# A layer as the default of a lambda's argument belongs to that one model, which is wanted here.
# ruff: noqa: B008

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["DYNAMIC", "SIBLINGS"]

SIBLINGS: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {}
DYNAMIC: dict[str, Any] = {}


class Call(nn.Module):
    """A function of its inputs as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def add(name: str, what: Any, *inputs: Any, dynamic: Any = None) -> None:
    module = what if isinstance(what, nn.Module) else Call(what)
    for norm in module.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm) and norm.running_mean is not None:
            norm.running_mean.uniform_(-0.5, 0.5)
            norm.running_var.uniform_(0.5, 2.0)
    SIBLINGS[name] = (module.eval(), inputs)
    if dynamic is not None:
        DYNAMIC[name] = dynamic


def r(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def t(*values: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


torch.manual_seed(7)

# --- pooling ---------------------------------------------------------------------------------
add("B001 adaptive 16x13 to 5x3", nn.AdaptiveAvgPool2d((5, 3)), r(2, 3, 16, 13))
add("B001 adaptive to more than there is", nn.AdaptiveAvgPool2d(7), r(1, 3, 3, 5))
add("B001 adaptive 1d", nn.AdaptiveAvgPool1d(7), r(2, 3, 10))
add("B001 adaptive 3d", nn.AdaptiveAvgPool3d((2, 3, 2)), r(1, 2, 5, 7, 4))
add("B001 adaptive of one axis", nn.AdaptiveAvgPool2d((None, 1)), r(1, 3, 6, 5))
add("B001 adaptive max uneven", nn.AdaptiveMaxPool2d((4, 3)), r(1, 3, 10, 11))
add("B001 adaptive max indices", nn.AdaptiveMaxPool2d(2, return_indices=True), r(1, 3, 6, 8))
add("B001 adaptive max 1d uneven", nn.AdaptiveMaxPool1d(4), r(1, 3, 10))
add("B001 adaptive unbatched", nn.AdaptiveAvgPool2d((2, 3)), r(3, 7, 8))
add("B002 avg ceil not counted", nn.AvgPool2d(3, 2, 1, True, False), r(1, 3, 8, 11) + 3)
add("B002 avg 1d not counted", nn.AvgPool1d(3, 2, 1, False, False), r(2, 3, 12) + 3)
add("B002 avg 1d ceil counted", nn.AvgPool1d(3, 2, 1, True, True), r(2, 3, 12) + 3)
add("B002 avg 3d not counted", nn.AvgPool3d(3, 2, 1, False, False), r(1, 2, 6, 7, 8) + 3)
add("B002 avg 3d divisor", nn.AvgPool3d(2, divisor_override=5), r(1, 2, 4, 6, 8))
add("B002 divisor, pad, ceil", nn.AvgPool2d(3, 2, 1, True, True, 4), r(1, 3, 8, 11) + 3)
add("B002 avg asymmetric kernel", nn.AvgPool2d((2, 3), (1, 2), (1, 0)), r(1, 3, 8, 11) + 3)
add("B004 ceil 1d", nn.MaxPool1d(3, 2, 1, ceil_mode=True), -r(1, 3, 14).abs() - 1)
add("B004 ceil 3d", nn.MaxPool3d(2, 2, ceil_mode=True), -r(1, 2, 5, 7, 3).abs() - 1)
add("B004 ceil, stride above kernel", nn.MaxPool2d(2, 3, ceil_mode=True), -r(1, 2, 9, 12) - 5)
add("B004 minus infinity", nn.MaxPool2d(3, 2, 1), torch.full((1, 2, 5, 5), -math.inf))
add("B004 max of integers", nn.MaxPool2d(2), torch.randint(-9, 9, (1, 2, 6, 6)))
add("B005 stride above kernel", nn.AvgPool2d(2, 3), r(1, 3, 10, 11))
add("B005 unbatched", nn.MaxPool2d(3, 2), r(3, 10, 11))
add("B007 dilated, strided, ceil", nn.MaxPool2d(3, 2, 1, 2, ceil_mode=True), r(1, 2, 13, 12))
add("B007 dilated 1d", nn.MaxPool1d(3, 1, 1, 2), r(1, 2, 13))
add("B007 dilated 3d", nn.MaxPool3d(2, 1, 0, 2), r(1, 2, 5, 6, 7))
add("B007 dilated indices", nn.MaxPool2d(2, 2, 0, 2, True), r(1, 2, 8, 9))
add("B007 max 1d indices", nn.MaxPool1d(2, return_indices=True), r(1, 2, 8))


class Unpool(nn.Module):
    def forward(self, x):
        y, index = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(y * 2, index, 2)


add("B007 max unpool", Unpool(), r(1, 2, 6, 8))

# --- convolutions ----------------------------------------------------------------------------
add("B008 1d output padding", nn.ConvTranspose1d(3, 4, 3, 3, 1, 2), r(2, 3, 7))
add("B008 3d output padding", nn.ConvTranspose3d(2, 3, 3, 2, 1, 1), r(1, 2, 3, 4, 3))
add("B008 groups and dilation", nn.ConvTranspose2d(4, 6, 3, 2, 2, 1, 2, dilation=2), r(1, 4, 5, 6))
add("B008 stride above kernel", nn.ConvTranspose2d(2, 3, 2, 3), r(1, 2, 4, 5))
add("B008 3d groups", nn.ConvTranspose3d(4, 4, 2, 2, groups=2), r(1, 4, 3, 3, 3))
add("B008 no bias, unbatched", nn.ConvTranspose2d(2, 3, 3, 2, bias=False), r(2, 4, 5))
add("B008 1d depthwise", nn.ConvTranspose1d(4, 4, 4, 2, 1, groups=4), r(1, 4, 6))
add("B010 multiplier, stride, dilation", nn.Conv2d(3, 6, 3, 2, 2, 2, 3), r(1, 3, 11, 12))
add("B010 multiplier 1d", nn.Conv1d(4, 8, 3, padding=1, groups=4), r(2, 4, 12))
add("B010 groups of two", nn.Conv2d(6, 9, 3, groups=3), r(1, 6, 8, 9))
add("B010 channels shuffled", nn.Sequential(nn.Conv2d(6, 6, 1, groups=3), nn.ChannelShuffle(3), nn.Conv2d(6, 6, 3, groups=6)), r(1, 6, 8, 9))  # fmt: skip


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(2, 6, 3, dilation=4), nn.Conv1d(6, 2, 3, dilation=8)

    def forward(self, x):
        return self.b(F.pad(torch.relu(self.a(F.pad(x, (8, 0)))), (16, 0))) + x


add("B011 causal dilated", Causal(), r(1, 2, 40))
add("B011 unbatched 1d", nn.Conv1d(3, 4, 3), r(3, 12))
add("B011 weight at run time", lambda x, w: F.conv1d(x, w, padding=1), r(1, 2, 9), r(3, 2, 3))
add("B011 2d weight at run time", lambda x, w: F.conv2d(x, w, groups=2), r(1, 4, 9, 9), r(4, 2, 3, 3))  # fmt: skip
add("B013 depthwise 3d", nn.Conv3d(3, 3, 3, padding=1, groups=3), r(1, 3, 4, 5, 6))
add("B013 dilated, strided 3d", nn.Conv3d(4, 6, 2, (1, 2, 1), 1, 2, 2), r(2, 4, 5, 6, 7))
add("B013 same padding 3d", nn.Conv3d(2, 2, 3, padding="same", padding_mode="replicate"), r(1, 2, 4, 4, 4))  # fmt: skip
add("B047 depthwise 5x5, odd size", nn.Conv2d(19, 19, 5, 2, 2, groups=19), r(1, 19, 37, 41))
add("B047 dilated depthwise", nn.Conv2d(8, 8, 3, padding=3, dilation=3, groups=8), r(1, 8, 21, 23))
add("B047 depthwise batch 3", nn.Conv2d(5, 5, 3, padding=1, groups=5), r(3, 5, 9, 9))
add("B068 same, even kernel 2d", nn.Conv2d(2, 3, (2, 4), padding="same"), r(1, 2, 7, 9))
add("B068 same, 1d even", nn.Conv1d(2, 3, 4, padding="same"), r(1, 2, 9))

# --- resizing --------------------------------------------------------------------------------
_RESIZES = {
    "recomputed factor": {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True},
    "odd factor": {"scale_factor": 1.7, "mode": "bilinear"},
    "nearest odd factor": {"scale_factor": 1.7, "mode": "nearest"},
    "nearest-exact down": {"size": (4, 5), "mode": "nearest-exact"},
    "bicubic corners": {"size": (13, 11), "mode": "bicubic", "align_corners": True},
    "bicubic down": {"scale_factor": 0.6, "mode": "bicubic"},
    "antialias": {"size": (4, 5), "mode": "bilinear", "antialias": True},
    "antialias bicubic": {"size": (4, 5), "mode": "bicubic", "antialias": True},
    "to one": {"size": (1, 1), "mode": "bilinear"},
    "corners to one": {"size": (1, 5), "mode": "bilinear", "align_corners": True},
}
for _name, _options in _RESIZES.items():
    add(f"B014 {_name}", lambda x, o=_options: F.interpolate(x, **o), r(2, 3, 9, 12))
add("B014 linear corners", lambda x: F.interpolate(x, 17, mode="linear", align_corners=True), r(1, 2, 8))  # fmt: skip
add("B014 trilinear", lambda x: F.interpolate(x, (5, 6, 3), mode="trilinear"), r(1, 2, 3, 4, 5))
add("B014 nearest 3d", lambda x: F.interpolate(x, scale_factor=2), r(1, 2, 3, 4, 5))
add("B014 resize as another input", lambda x, y: F.interpolate(x, y.shape[-2:], mode="bilinear"), r(1, 2, 3, 4), r(1, 2, 7, 6))  # fmt: skip
add("B015 nearest of integers", lambda x: F.interpolate(x.float(), scale_factor=3).to(torch.int64), torch.randint(0, 9, (1, 1, 3, 4)))  # fmt: skip
_grid = torch.rand(1, 5, 6, 2) * 2.4 - 1.2
add("B014 grid sample", lambda x, g: F.grid_sample(x, g, align_corners=False), r(1, 2, 7, 8), _grid)
add("B014 grid sample border", lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True), r(1, 2, 7, 8), _grid)  # fmt: skip
add("B014 affine grid", lambda m: F.affine_grid(m, [1, 2, 4, 5], align_corners=False), r(1, 2, 3))

# --- activations at their ends ---------------------------------------------------------------
_EXTREMES = torch.cat([torch.linspace(-120, 120, 61), t(-1e4, -88.8, -1e-8, 0.0, 1e-8, 88.8, 1e4)])
for _module in (
    nn.Sigmoid(), nn.Tanh(), nn.SiLU(), nn.Mish(), nn.Softplus(), nn.LogSigmoid(), nn.GELU(),
    nn.GELU("tanh"), nn.ELU(), nn.SELU(), nn.CELU(0.5), nn.Softsign(), nn.Softmax(0),
    nn.LogSoftmax(0), nn.Hardswish(), nn.Tanhshrink(),
):  # fmt: skip
    add(f"B016 extremes {_module}", _module, _EXTREMES.clone())
add("B016 exp overflows", torch.exp, t(-200.0, 0.0, 88.0, 89.0, 200.0))
add("B016 logs of nothing", lambda x: (x.log(), x.sqrt(), 1 / x), t(0.0, 1.0, -1.0))
add("B016 softmax with minus infinity", lambda x: x.softmax(-1), t([0.0, -math.inf, 1.0], [2.0, 3.0, -math.inf]))  # fmt: skip
add("B016 not a number stays", lambda x: (x.relu(), x.clamp(-1, 1), torch.maximum(x, x * 0), x.max()), t(math.nan, 1.0, -3.0))  # fmt: skip
add("B016 prelu of channels", nn.PReLU(3), r(2, 3, 4, 5))
add("B016 glu of channels", nn.GLU(1), r(2, 6, 4, 5))
add("B016 swiglu", lambda a, b: F.silu(a) * b, r(2, 6), r(2, 6))
add("B016 clamp by tensors", lambda x, a: x.clamp(min=a, max=a + 1), r(3, 4), r(4))
add("B016 nan_to_num", lambda x: x.nan_to_num(0.5, 7.0, -7.0), t(math.nan, math.inf, -math.inf, 2.0))  # fmt: skip
_UNARY = (
    "log2 log10 log1p expm1 exp2 sinh cosh tan asin acos atan asinh acosh atanh erfinv "
    "deg2rad rad2deg sinc positive sgn i0 digamma lgamma logit special_expit special_ndtr"
)
for _name in _UNARY.split():
    _f = getattr(torch, _name, None) or getattr(torch.special, _name.removeprefix("special_"))
    _x = torch.linspace(0.05, 0.95, 9)
    add(f"B059 {_name}", _f, _x + 1 if _name in ("acosh", "digamma", "lgamma") else _x)
for _name in ("logaddexp", "xlogy", "fmax", "fmin", "float_power", "heaviside", "ldexp", "nextafter", "logaddexp2"):  # fmt: skip
    add(f"B059 {_name}", getattr(torch, _name), torch.rand(7) + 0.1, torch.rand(7) + 0.2)
add("B059 round to even", torch.round, t(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e9, -0.3))
add("B059 round decimals", lambda x: torch.round(x, decimals=2), t(1.235, -2.344, 0.005))
add("B059 fmod and remainder", lambda x, y: (torch.fmod(x, y), torch.remainder(x, y), x // y), t(-7.5, 7.5, -7.5, 7.5), t(2.0, 2.0, -2.0, -2.0))  # fmt: skip
add("B059 powers", lambda x: (x**3, x.abs() ** 0.5, x.abs() ** -1.5, 2**x, x**0, x**2), r(9))
add("B059 negative base", lambda x: torch.pow(x, t(2.0, 3.0, -1.0)), t(-2.0, -3.0, -4.0))

# --- recurrent -------------------------------------------------------------------------------
add("B018 lstm two layers, projection", nn.LSTM(5, 8, 2, proj_size=3, batch_first=True), r(2, 4, 5))
add("B018 lstm with its state", lambda x, h, c, m=nn.LSTM(5, 6): m(x, (h, c)), r(4, 2, 5), r(1, 2, 6), r(1, 2, 6))  # fmt: skip
add("B018 lstm unbatched", nn.LSTM(5, 6, bidirectional=True), r(4, 5))
add("B019 gru two ways", nn.GRU(5, 6, 2, bidirectional=True, batch_first=True, bias=False), r(2, 4, 5))  # fmt: skip
add("B019 last step of gru", lambda x, m=nn.GRU(5, 6, batch_first=True): m(x)[0][:, -1], r(2, 4, 5))


class ConvLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.gates = nn.Conv2d(2 + 3, 12, 3, padding=1)

    def forward(self, frames):
        h = c = torch.zeros(frames.shape[0], 3, *frames.shape[-2:])
        for frame in frames.unbind(1):
            i, f, g, o = self.gates(torch.cat([frame, h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h


add("B020 convolutional lstm", ConvLstm(), r(1, 3, 2, 5, 6))

# --- state -----------------------------------------------------------------------------------


class State(nn.Module):
    def __init__(self, function: Callable[..., Any], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def _ema(self, x):
    self.mean.mul_(0.9).add_(x, alpha=0.1)
    return x - self.mean


def _ring(self, x):
    self.window.copy_(torch.cat([self.window[1:], x[None]]))
    return self.window.mean(0), self.window


def _count(self, x):
    self.n += 1
    return x / self.n, self.n


def _assigned(self, x):
    old = self.old
    self.old = x * 2
    return x - old


def _flag(self, x):
    first = ~self.seen
    self.seen.fill_(True)
    return torch.where(first, x, -x)


def _two(self, x):
    self.a.add_(x)
    self.b.mul_(self.a)
    return self.b


def _cache_slice(self, x):
    self.cache[:, 1:3] = x
    self.cache[:, :1] += x[:, :1]
    return self.cache.sum(1)


def _cache_place(self, x):
    self.cache[:, self.n] = x
    self.n += 1
    return self.cache


def _cache_copy(self, x):
    self.cache.index_copy_(1, self.n.reshape(1), x[:, None])
    self.n.add_(1)
    return self.cache.cumsum(1)


def _cache_scatter(self, x):
    index = self.n.reshape(1, 1, 1).expand(2, 1, 3)
    self.cache.scatter_(1, index, x[:, None])
    self.n.add_(1)
    return self.cache


def _view(self, x):
    self.flat.view(2, 3)[1].add_(x)
    return self.flat


def _unread(self, x):
    self.last.copy_(x.argmax().reshape(1))
    return x


def _half_used(self, x):
    self.hidden = torch.tanh(self.hidden + x)
    return {"out": self.hidden * 2, "hidden": self.hidden}


add("B021 running mean", State(_ema, mean=torch.zeros(4)), r(4))
add("B021 ring buffer", State(_ring, window=torch.zeros(5, 3)), r(3))
add("B021 counter", State(_count, n=torch.zeros((), dtype=torch.int64)), r(3))
add("B021 assigned buffer", State(_assigned, old=torch.ones(3)), r(3))
add("B021 boolean state", State(_flag, seen=torch.zeros(1, dtype=torch.bool)), r(3))
add("B021 two states", State(_two, a=torch.zeros(3), b=torch.ones(3)), r(3))
add("B021 slices of a state", State(_cache_slice, cache=torch.zeros(2, 6, 3)), r(2, 2, 3))
add("B021 place in a state", State(_cache_place, cache=torch.zeros(2, 6, 3), n=t(0)[0]), r(2, 3))
add("B021 index_copy", State(_cache_copy, cache=torch.zeros(2, 6, 3), n=t(0)[0]), r(2, 3))
add("B021 scatter", State(_cache_scatter, cache=torch.zeros(2, 6, 3), n=t(0)[0]), r(2, 3))
add("B021 view of a state", State(_view, flat=torch.zeros(6)), r(3))
add("B021 state that is not read", State(_unread, last=torch.zeros(1, dtype=torch.int64)), r(3))
add("B021 state as output", State(_half_used, hidden=torch.zeros(3)), r(3))
add("B021 batch statistics", nn.BatchNorm1d(3, track_running_stats=False), r(5, 3))


class Training(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        n = self.norm
        return F.batch_norm(x, n.running_mean, n.running_var, n.weight, n.bias, True, 0.3)


add("B021 statistics that go on", Training(), r(5, 3))


def _mutates_slice(x, y):
    x[:, 0] = y
    return x.sum()


def _mutates_two(x, y):
    x.add_(1)
    y.mul_(x)
    return x + y


def _mutates_and_returns(x):
    x.relu_()
    return x


add("B022 slice of an input", _mutates_slice, r(3, 4), r(3))
add("B022 two inputs", _mutates_two, r(3), r(3))
add("B022 returned input", _mutates_and_returns, r(3, 4))

# --- indexing and assignment -----------------------------------------------------------------


def _assign_step(x, v):
    y = x.clone()
    y[:, ::2] = v
    return y


def _assign_mask(x):
    y = x.clone()
    y[y < 0] = 0.25
    return y


def _assign_index(x, v, i):
    y = x.clone()
    y[:, i] = v
    return y


def _assign_pairs(x, v, i, j):
    y = x.clone()
    y[i, j] = v
    return y


def _accumulate(x, v, i):
    return x.clone().index_put((i,), v, accumulate=True)


def _assign_transposed(x):
    y = x.clone()
    y.t()[1] = 7.0
    y.diagonal().fill_(-1.0)
    return y


def _many(x):
    y = x.clone()
    y[0] += 1
    y[:, 1] *= 2
    y[..., -1:] = y[..., :1]
    return y


_i = t(3, 0, -1)
add("B023 assignment with steps", _assign_step, r(3, 6), r(3, 3))
add("B023 assignment by mask", _assign_mask, r(3, 6))
add("B023 assignment by index", _assign_index, r(2, 5, 3), r(2, 3, 3), t(3, 0, -1))
add("B023 assignment by two indices", _assign_pairs, r(4, 5), r(3), _i, t(1, 4, -2))
add("B023 accumulation", _accumulate, r(5, 3), r(4, 3), t(1, 1, 4, -5))
add("B023 transposed and diagonal", _assign_transposed, r(4, 4))
add("B023 one after the other", _many, r(3, 4))
add("B023 index_add", lambda x, v: x.index_add(1, t(0, 2, 2), v, alpha=2), r(2, 4), r(2, 3))
add("B023 index_fill", lambda x: x.index_fill(1, t(0, 2), -1.0), r(2, 4))
add("B023 scatter_reduce", lambda x, i, v: x.scatter_reduce(0, i, v, "amax"), r(5), t(0, 1, 1), r(3))  # fmt: skip
add("B023 scatter_add rows", lambda x, i, v: x.scatter_add(0, i, v), r(4, 3), t([0, 1, 1], [3, 3, 0]), r(2, 3))  # fmt: skip
add("B023 masked_scatter by where", lambda x, m, v: torch.where(m, v, x), r(3, 4), r(3, 4) > 0, r(4))  # fmt: skip
add("B023 slice_scatter", lambda x, v: torch.slice_scatter(x, v, 1, 1, 5, 2), r(2, 6), r(2, 2))
add("B023 select_scatter", lambda x, v: torch.select_scatter(x, v, 1, -1), r(2, 6), r(2))
add("B025 two index tensors", lambda x, i, j: x[i, j], r(4, 5, 3), _i, t(1, 4, -5))
add("B025 index and slice", lambda x, i: x[1:, i, ::2], r(3, 5, 4), t(0, -1))
add("B025 indices apart", lambda x, i, j: x[i, :, j], r(4, 5, 3), t(0, -1), t(2, -3))
add("B025 broadcast indices", lambda x, i, j: x[i[:, None], j], r(4, 5), t(0, -1), t(1, -2, 3))
add("B025 constant mask", lambda x: x[:, t(True, False, True, False)], r(2, 4))
add("B025 mask at run time", lambda x, m: x[m] * 2, r(4, 2), t(True, False, True, True))
add("B025 take", lambda x, i: torch.take(x, i), r(3, 4), t(0, 11, -1))
add("B025 take_along_dim", lambda x: torch.take_along_dim(x, x.argsort(1), 1), r(3, 4))
add("B025 matrix of indices", lambda x, i: x[i], r(5, 2), t([0, -1], [-5, 3]))
add("B025 int32 indices", lambda x, i: x[i.long()], r(5, 2), t(0, -1, dtype=torch.int32))
add("B025 index_select on three axes", lambda x, i: (x.index_select(0, i), x.index_select(2, i)), r(3, 2, 3), t(2, 0))  # fmt: skip
add("B026 ids of rank 3", nn.Embedding(9, 4), torch.randint(0, 9, (2, 3, 2)))
add("B026 int32 ids", nn.Embedding(9, 4), torch.randint(0, 9, (2, 3), dtype=torch.int32))
add("B026 bag mean", nn.EmbeddingBag(9, 4, mode="mean"), torch.randint(0, 9, (2, 3)))
add("B026 bag sum by offsets", nn.EmbeddingBag(9, 4, mode="sum"), torch.randint(0, 9, (6,)), t(0, 2))  # fmt: skip
add("B026 one hot", lambda i: F.one_hot(i, 7), torch.randint(0, 7, (2, 3)))
add("B026 tied weights", lambda i, e=nn.Embedding(9, 4): e(i) @ e.weight.t(), t([1, 2, 8]))

# --- matrix products and integers ------------------------------------------------------------
add("B028 vector by batch", torch.matmul, r(5), r(2, 5, 6))
add("B028 batch by vector", torch.matmul, r(2, 3, 4), r(4))
add("B028 five ranks", torch.matmul, r(2, 1, 3, 4, 5), r(3, 1, 5, 2))
add("B028 vector by vector", torch.matmul, r(5), r(5))
add("B028 einsum attention", lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k), r(1, 3, 2, 4), r(1, 5, 2, 4))  # fmt: skip
add("B028 einsum sums", lambda a, b: torch.einsum("ij,kj->i", a, b), r(3, 4), r(5, 4))
add("B028 tensordot", lambda a, b: torch.tensordot(a, b, dims=([1, 2], [0, 2])), r(2, 3, 4), r(3, 5, 4))  # fmt: skip
add("B028 bilinear", nn.Bilinear(3, 4, 5), r(2, 3), r(2, 4))
add("B028 addmm with factors", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), r(3, 5), r(3, 4), r(4, 5))  # fmt: skip
add("B028 baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, beta=2), r(2, 3, 5), r(2, 3, 4), r(2, 4, 5))  # fmt: skip
add("B028 of int64", lambda a, b: a @ b, torch.randint(-9, 9, (3, 4)), torch.randint(-9, 9, (4, 5)))
add("B028 of int32", torch.matmul, torch.randint(-9, 9, (3, 4), dtype=torch.int32), torch.randint(-9, 9, (4, 5), dtype=torch.int32))  # fmt: skip
add("B028 kron", torch.kron, r(2, 3), r(2, 2))
add("B028 outer and trace", lambda a, b: (torch.outer(a, b), torch.outer(a, a).trace()), r(3), r(4))
add("B029 batch of the left", torch.matmul, r(1, 3, 4), r(5, 4, 2))
add("B029 bmm", torch.bmm, r(4, 1, 3), r(4, 3, 1))
_a, _b = t(-7, 7, -8, 8, -1), t(2, -2, 3, -3, 5)
_i32 = torch.int32
add("B041 int32", lambda a, b: (a // b, a % b, torch.fmod(a, b), torch.div(a, b, rounding_mode="trunc")), _a.to(_i32), _b.to(_i32))  # fmt: skip
add("B041 by numbers", lambda a: (a // 2, a % 3, a // -2, a % -3, a / 2, -a // 4), _a.clone())
add("B041 bits", lambda a, b: (a & b, a | b, a ^ b, ~a, a << 2, a >> 1), _a.clone(), _b.clone())
add("B041 floats", lambda a, b: (a // b, a % b, torch.div(a, b, rounding_mode="floor")), _a.float(), _b.float())  # fmt: skip
add("B041 wrapping int8", lambda a: (a + 100, a * 3, -a), t(-128, 127, 50, dtype=torch.int8))
add("B041 wrapping int32", lambda a: (a + 5, a * 3), t(2**31 - 1, -(2**31), dtype=_i32))
add("B041 large int64", lambda a: (a + 1, a * 2, a > 2**40, a // 1000), t(2**40 + 3, -(2**41), 5))
add("B041 large int64 to float", lambda a: (a.float(), a / 1000, a.float() * 1e-9), t(2**40 + 3, -(2**41), 5, 2**31))  # fmt: skip
add("B041 float to int64", lambda x: x.to(torch.int64), t(-2.7, 2.7, 3e9, -5e10, 0.5, -0.5))
add("B041 float to int32", lambda x: (x.to(_i32), x.to(torch.int8)), t(-2.7, 2.7, 100.9, -100.9))
add("B041 sum of bools", lambda x: ((x > 0).sum(), (x > 0).float().mean(), (x > 0).sum(1)), r(3, 4))
add("B041 sum of int32", lambda x: (x.sum(), x.sum(0), x.prod(), x.cumsum(0)), _a.to(_i32))
add("B041 mean of integers", lambda x: x.mean(dtype=torch.float32), _a.clone())
add("B041 large int comparisons", lambda a, b: (a == b, a < b, torch.maximum(a, b)), t(2**40, 1), t(2**40 + 1, 1))  # fmt: skip
add("B041 argmax ties", lambda x: (x.argmax(1), x.argmin(1), x.max(1), x.min(1)), t([1.0, 3.0, 3.0], [2.0, 2.0, 2.0]))  # fmt: skip
add("B041 abs, sign, clamp", lambda a: (a.abs(), a.sign(), a.clamp(-3, 5), a.clamp(min=2)), _a.clone())  # fmt: skip
add("B041 powers of integers", lambda a: (a**2, a**3), _a.clone())
add("B041 int8 input", lambda a: a.float() * 0.5, t(-128, 127, 5, dtype=torch.int8))
add("B041 int16 input", lambda a: a.to(torch.int32) * 100, t(-32768, 32767, dtype=torch.int16))
add("B041 bool input", lambda m, x: (x * m, ~m, m.float().sum()), t(True, False, True), r(3))
add("B041 sort of integers", lambda a: torch.sort(a, descending=True), _a.clone())
add("B041 searchsorted", lambda x: torch.searchsorted(t(0.0, 1.0, 2.0), x), t(-1.0, 0.0, 1.5, 2.0, 9.0))  # fmt: skip

# --- shapes, pads, slices --------------------------------------------------------------------
add("B031 unshuffle 3", nn.PixelUnshuffle(3), r(2, 1, 6, 9))
add("B031 shuffle batch", nn.PixelShuffle(2), r(2, 8, 3, 4))
add("B031 patches", lambda x: x.unfold(2, 4, 4).unfold(3, 4, 4).flatten(4), r(1, 3, 8, 12))
add("B031 fold back", lambda x: F.fold(F.unfold(x, 3, padding=1, stride=2), (8, 9), 3, padding=1, stride=2), r(1, 2, 8, 9))  # fmt: skip
add("B032 one norm twice", lambda x, n=nn.BatchNorm1d(4).eval(): n(torch.relu(n(x))), r(3, 4))
add("B032 norm first", nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3, padding=1)), r(1, 3, 6, 7))  # fmt: skip
add("B032 without weights", nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, affine=False)), r(3, 4))  # fmt: skip
add("B032 after transposed", nn.Sequential(nn.ConvTranspose2d(2, 4, 2, 2), nn.BatchNorm2d(4)), r(1, 2, 4, 5))  # fmt: skip
add("B032 sequence", nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4)), r(2, 3, 9))
_conv = nn.Conv2d(3, 3, 3, padding=1)
add("B066 convolution twice", nn.Sequential(_conv, nn.BatchNorm2d(3), nn.ReLU(), _conv, nn.BatchNorm2d(3)), r(1, 3, 6, 7))  # fmt: skip
for _mode in ("reflect", "replicate", "circular"):
    add(f"B034 {_mode} 2d", lambda x, m=_mode: F.pad(x, (2, 1, 0, 3), m), r(1, 2, 5, 6))
    add(f"B034 {_mode} 1d", lambda x, m=_mode: F.pad(x, (3, 2), m), r(1, 2, 6))
    add(f"B034 {_mode} 3d", lambda x, m=_mode: F.pad(x, (1, 1, 2, 0, 1, 1), m), r(1, 1, 3, 4, 5))
add("B034 infinite pad", lambda x: F.pad(x, (1, 1), value=-math.inf), r(2, 3))
add("B034 pad of integers", lambda x: F.pad(x, (1, 2), value=7), t([1, 2, 3]))
add("B034 pad of bools", lambda x: F.pad(x, (1, 2), value=True), t([True, False]))
add("B034 crop and grow 3d", lambda x: F.pad(x, (-1, 1, 2, -1, 0, 1), value=2.0), r(2, 3, 4))
add("B034 pad of uint8", lambda x: F.pad(x, (1, 1), value=200), t([1, 255], dtype=torch.uint8))
add("B035 reversed cumsum", lambda x: x.flip(1).cumsum(1).flip(1), r(2, 6))
add("B035 cumsum of int32", lambda x: x.cumsum(-1, dtype=_i32), _a.to(_i32))
add("B035 cummax", lambda x: torch.cummax(x, 1), r(2, 6))
add("B035 logcumsumexp", lambda x: torch.logcumsumexp(x, 1), r(2, 6))
add("B035 cumprod", lambda x: x.cumprod(0), r(4, 3))
add("B035 diff", lambda x: torch.diff(x, dim=1), r(2, 6))
add("B043 rotations", lambda x: (torch.rot90(x, 3, (2, 3)), x.flip(0, 1), torch.flipud(x[0, 0])), r(2, 3, 4, 5))  # fmt: skip
add("B043 rolls", lambda x: (x.roll(-2, 1), x.roll((1, -1), (0, 1)), x.roll(7)), r(3, 4))
add("B043 flip of integers", lambda x: (x.flip(0), x.flip(0) > 2), t(1, 2, 3, 4))
add("B044 mixed slices", lambda x: (x[::2, ::3], x[-3:-1, 1], x[..., None, -1], x[1][:, 2:]), r(4, 5, 6))  # fmt: skip
add("B044 empty slice", lambda x: (x[:, 3:3], torch.cat([x[:, :0], x], 1)), r(2, 5))
add("B044 nothing at all", lambda x: torch.cat([x, torch.zeros(0, 3)]), r(2, 3))
add("B044 uneven splits", lambda x: (*x.tensor_split(3, 1), *x.split(4, 1), *x.chunk(4, 1)), r(2, 10))  # fmt: skip
add("B044 scalars out", lambda x: (x[0, 0], x.sum(), x[1].max()), r(2, 3))
add("B044 unsqueeze, expand", lambda x: x[:, None].expand(-1, 3, -1) + x[None], r(3, 4))
add("B044 as_strided", lambda x: torch.as_strided(x, (3, 2), (2, 1), 1), r(10))
add("B044 meshgrid, stack", lambda x, y: torch.stack(torch.meshgrid(x, y, indexing="xy"), -1), r(3), r(4))  # fmt: skip
add("B044 block_diag", torch.block_diag, r(2, 3), r(1, 2))
add("B044 interleave by tensor", lambda x: x.repeat_interleave(t(1, 2, 0), 0, output_size=3), r(3, 2))  # fmt: skip
add("B044 nothing but moves", lambda x: x.permute(1, 2, 0).contiguous().view(-1, 2).t(), r(2, 3, 4))
add("B044 complicated view", lambda x: x.view(2, 3, 4).transpose(0, 1).flatten(1).unflatten(1, (4, 2)), r(6, 4))  # fmt: skip
add("B044 topk smallest", lambda x: x.topk(3, 0, largest=False), r(6, 2))
add("B044 argsort", lambda x: (x.argsort(-1), x.argsort(0, descending=True)), r(3, 5))
add("B044 tril, triu", lambda x: (x.tril(-1), x.triu(1), torch.tril(x[0])), r(2, 4, 5))
add("B044 std of nothing left", lambda x: x.std(1, unbiased=False), r(3, 1))

# --- attention -------------------------------------------------------------------------------
_q, _k, _v = r(1, 4, 3, 8), r(1, 4, 6, 8), r(1, 4, 6, 8)
_sdpa = F.scaled_dot_product_attention
add("B037 causal, more queries", lambda q, k, v: _sdpa(q, k, v, is_causal=True), r(1, 2, 6, 4), r(1, 2, 3, 4), r(1, 2, 3, 4))  # fmt: skip
add("B037 scale", lambda q, k, v: _sdpa(q, k, v, scale=0.3), _q, _k, _v)
add("B037 grouped queries", lambda q, k, v: _sdpa(q, k, v, enable_gqa=True), _q, r(1, 2, 6, 8), r(1, 2, 6, 8))  # fmt: skip
add("B037 rank 3", lambda q, k, v: _sdpa(q, k, v, is_causal=True), r(2, 4, 8), r(2, 4, 8), r(2, 4, 8))  # fmt: skip
_hidden = torch.zeros(3, 6).masked_fill(r(3, 6) > 0.8, -math.inf)
_hidden[1] = -math.inf
add("B038 additive mask, one row whole", lambda q, k, v, m: _sdpa(q, k, v, m), _q, _k, _v, _hidden)
add("B038 constant mask", lambda q, k, v, m=_hidden: _sdpa(q, k, v, m), _q, _k, _v)
add("B038 mask by hand", lambda q, k: (q @ k.mT).masked_fill(t(True, False, False, True, False, False), -math.inf).softmax(-1), r(3, 4), r(6, 4))  # fmt: skip


class Attention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)

    def forward(self, q, k, padding=None, mask=None):
        return self.attention(q, k, k, key_padding_mask=padding, attn_mask=mask)


_padding = t([False, False, True], [False, True, True])
add("B036 multi-head with weights", Attention(), r(2, 4, 8), r(2, 3, 8))
add("B036 padding mask", Attention(), r(2, 4, 8), r(2, 3, 8), _padding)
add("B036 both masks", Attention(), r(2, 3, 8), r(2, 3, 8), _padding, torch.ones(3, 3).triu(1) > 0)
add("B036 bias of keys, zero key", Attention(add_bias_kv=True, add_zero_attn=True), r(2, 4, 8), r(2, 3, 8))  # fmt: skip


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True)

    def forward(self, x, memory):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.layer(x, memory, tgt_mask=mask, tgt_is_causal=True)


add("B051 decoder layer", Decoder(), r(1, 4, 8), r(1, 5, 8))
add("B051 encoder of two layers", nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, activation="gelu"), 2, enable_nested_tensor=False), r(5, 2, 8))  # fmt: skip
add("B051 whole transformer", nn.Transformer(8, 2, 1, 1, 16, batch_first=True), r(1, 4, 8), r(1, 3, 8))  # fmt: skip
add("B033 norms", lambda x: (F.layer_norm(x, (4, 5)), F.rms_norm(x, (5,)), F.group_norm(x, 3), F.instance_norm(x)), r(2, 6, 4, 5))  # fmt: skip
add("B033 small variance", nn.LayerNorm(8), r(3, 8) * 0.1 + 30)
add("B033 spreads", lambda x: (x.std(), x.var((0, 1)), *torch.var_mean(x, 1), *torch.std_mean(x)), r(4, 5))  # fmt: skip

# --- constants, outputs, signatures ----------------------------------------------------------
add("B040 nested outputs", lambda x: {"a": [x + 1, (x * 2, None)], "b": {"c": x.sum()}}, r(3))
add("B040 named tuple", lambda x: x.max(0), r(3, 4))
add("B040 one value twice", lambda x: (x + 1, x * 2, x + 1), r(3))
add("B040 same tensor twice", lambda x: [y := x + 1, y, y.view(3, 1)], r(3))
add("B040 literals", lambda x: (x + 1, 3, 2.5, True, "name", None), r(3))
add("B040 views of an input", lambda x: (x, x.view(6), x[0], x.t()), r(2, 3))
add("B040 only constants", lambda x: torch.arange(5.0) * 2, r(3))
add("B040 unused input", lambda x, y: x * 2, r(3), r(4))
add("B040 shape as output", lambda x: (x * x.shape[0], x.shape[1]), r(2, 3))
add("B040 list input", lambda x, y: [x + y[0], y[1]["z"]], r(3), [r(3), {"z": r(2)}])
add("B040 optional input", lambda x, y=None: x if y is None else x + y, r(3))
add("B040 int and bool out", lambda x: (x > 0, x.long(), x.int(), x.argmax()), r(4) * 3)
add("B040 parameter out", lambda x, p=nn.Parameter(r(3)): (x + p, p), r(3))


class Llama(nn.Module):
    """Rotary embedding by complex numbers, as Llama's reference spells it."""

    def forward(self, x):
        b, n, d = x.shape
        angle = torch.outer(torch.arange(n).float(), 1.0 / 10000 ** (torch.arange(0, d, 2) / d))
        turn = torch.polar(torch.ones_like(angle), angle)
        whole = torch.view_as_complex(x.reshape(b, n, d // 2, 2))
        return torch.view_as_real(whole * turn).flatten(2)


add("B052 complex rotary", Llama(), r(1, 5, 8))


def _alibi(x):
    n = x.shape[-1]
    far = torch.arange(n)[None] - torch.arange(n)[:, None]
    slopes = t(0.5, 0.25)[:, None, None]
    return (x + far.clamp(max=0) * slopes).masked_fill(far > 0, -math.inf).softmax(-1)


def _sinusoidal(x):
    places = torch.arange(x.shape[1], dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, x.shape[2], 2) * (-math.log(10000.0) / x.shape[2]))
    table = torch.zeros(x.shape[1], x.shape[2])
    table[:, 0::2], table[:, 1::2] = torch.sin(places * rate), torch.cos(places * rate)
    return x + table


add("B052 linear biases", _alibi, r(2, 5, 5))
add("B052 sinusoids", _sinusoidal, r(1, 6, 8))
add("B052 empty, full, eye", lambda x: x @ torch.eye(3) + torch.full((3,), 2.0) + torch.zeros_like(x), r(2, 3))  # fmt: skip
add("B052 spectrum", lambda x: torch.fft.rfft(x).abs(), r(2, 16))
add("B052 stft", lambda x: torch.stft(x, 16, 8, window=torch.hann_window(16), return_complex=True).abs(), r(1, 64))  # fmt: skip


class Kept(nn.Module):
    def forward(self, x):
        self.seen = [x + 1]
        self.last = {"x": x * 2}
        return self.seen[0] * self.last["x"]


class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = [r(3), r(3)]
        self.scale = torch.tensor(0.5)
        self.steps = [1, 2, 3]

    def forward(self, x):
        for table, step in zip(self.tables, self.steps, strict=False):
            x = x * self.scale + table * step
        return x


add("B055 lists on self", Kept(), r(4))
add("B055 list of plain tensors", Tables(), r(3))

# --- bytes and other dtypes ------------------------------------------------------------------
_bytes = torch.randint(0, 256, (1, 3, 6, 6), dtype=torch.uint8)
add("B058 division", lambda x: x / 255, _bytes)
add("B058 mean of an image", lambda x: x.float().mean((2, 3)), _bytes)
add("B058 permuted first", lambda x: x.permute(0, 3, 1, 2).float() / 127.5 - 1, _bytes.permute(0, 2, 3, 1).contiguous())  # fmt: skip
add("B058 bytes back", lambda x: (x.float() * 0.5 + 60).clamp(0, 255).round().to(torch.uint8), _bytes)  # fmt: skip
add("B058 byte arithmetic wraps", lambda x, y: (x + y, x - y, x * 2), _bytes, _bytes.flip(3).contiguous())  # fmt: skip
add("B058 byte comparisons", lambda x: (x > 127, x == 255, x.max(), x.argmax()), _bytes)
add("B058 bytes passed through", lambda x: (x, x.flip(3), x[:, :1], x.float()), _bytes)
add("B058 byte to integers", lambda x: (x.long(), x.int(), x.to(torch.int16), x.bool()), _bytes)
add("B058 table of bytes", lambda x, m=nn.Embedding(256, 3): m(x.long()), _bytes)
add("B058 sum of bytes", lambda x: (x.sum(), x.sum(3)), _bytes)
add("B058 byte mask", lambda x: torch.where(x > 100, x, 255 - x), _bytes)
add("B058 resized", lambda x: F.interpolate(x.float(), (4, 4), mode="bilinear"), _bytes)
add("B058 pooled", lambda x: F.max_pool2d(x.float(), 2), _bytes)
add("B058 byte constant", lambda x, c=t(1, 200, 255, dtype=torch.uint8): x * c.float(), r(3))
add("B058 byte buffer gathered", State(lambda s, i: s.c[i].float(), c=t(1, 200, 255, dtype=torch.uint8)), t(2, 0, 1))  # fmt: skip
add("B060 float16 model", nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).half(), r(2, 4).half())  # fmt: skip
add("B060 bfloat16 model", nn.Sequential(nn.Linear(4, 5), nn.ReLU()).bfloat16(), r(2, 4).bfloat16())
add("B060 float64 model", nn.Sequential(nn.Linear(4, 5), nn.Tanh()).double(), r(2, 4).double())
add("B060 float64 in between", lambda x: (x.double() * 1.1 + 0.3).sum(1).float(), r(2, 4))
add("B060 half in between", lambda x: (x.half() * 2).float(), r(2, 4))
add("B060 float64 input", lambda x: x.float() * 2, r(2, 4).double())
add("B060 int64 to half", lambda x: x.half() / 2, t(1, 2, 3))

# --- dynamic batch ---------------------------------------------------------------------------
_batch = torch.export.Dim("batch", min=1, max=8)
add("B046 dynamic linear", nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)), r(3, 4), dynamic=({0: _batch},))  # fmt: skip
add("B046 dynamic convolution", nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)), r(2, 2, 6, 6), dynamic=({0: _batch},))  # fmt: skip
add("B046 dynamic attention", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), r(2, 4, 8), dynamic=({0: _batch},))  # fmt: skip
