"""Every module of torch.nn and the common functions: equal to eager, or refused by name.

The models of a batch are lowered one by one and run on this computer by IREE; nothing may be
silently wrong. ``REFUSED`` lists what is known to be refused, so that the list can only shrink.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgectl.errors import UnsupportedModelError
from edgectl.lowering import lower
from support.exported import export
from support.host_run import worst_error

TOLERANCE = 1e-4  # of the largest expected value: float32, sums in another order


class Call(nn.Module):
    """A function of its inputs as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def image(c=4, h=9, w=10, n=1):
    return torch.randn(n, c, h, w)


V = (2, 3, 8)

ACTIVATIONS = [
    nn.ReLU(),
    nn.ReLU6(),
    nn.LeakyReLU(0.2),
    nn.PReLU(),
    nn.ELU(),
    nn.SELU(),
    nn.CELU(),
    nn.GELU(),
    nn.GELU("tanh"),
    nn.SiLU(),
    nn.Mish(),
    nn.Softplus(),
    nn.Softplus(2.0, 5.0),
    nn.Softsign(),
    nn.Sigmoid(),
    nn.Tanh(),
    nn.Hardtanh(-0.5, 0.7),
    nn.Hardswish(),
    nn.Hardsigmoid(),
    nn.LogSigmoid(),
    nn.Softmax(-1),
    nn.Softmax(1),
    nn.Softmin(-1),
    nn.LogSoftmax(-1),
    nn.Hardshrink(0.3),
    nn.Softshrink(0.3),
    nn.Tanhshrink(),
    nn.Threshold(0.1, -2.0),
    nn.GLU(),
    nn.Identity(),
    nn.Dropout(),
    nn.AlphaDropout(),
    nn.RReLU(),
]
NORMS = [
    (nn.LayerNorm(8), (2, 3, 8)),
    (nn.LayerNorm([3, 8]), (2, 3, 8)),
    (nn.LayerNorm(8, elementwise_affine=False), (2, 3, 8)),
    (nn.RMSNorm(8), (2, 3, 8)),
    (nn.GroupNorm(2, 4), (2, 4, 5, 6)),
    (nn.GroupNorm(4, 4, affine=False), (2, 4, 7)),
    (nn.InstanceNorm1d(4), (2, 4, 9)),
    (nn.InstanceNorm2d(4, affine=True), (2, 4, 5, 6)),
    (nn.InstanceNorm3d(2), (1, 2, 3, 4, 5)),
    (nn.BatchNorm1d(4), (3, 4)),
    (nn.BatchNorm1d(4), (3, 4, 5)),
    (nn.BatchNorm2d(4), (1, 4, 5, 6)),
    (nn.BatchNorm3d(2), (1, 2, 3, 4, 5)),
    (nn.LocalResponseNorm(3), (1, 5, 4, 4)),
]
CONVOLUTIONS = [
    (nn.Conv1d(3, 5, 3), (1, 3, 12)),
    (nn.Conv1d(4, 4, 3, padding=1, groups=4), (2, 4, 12)),
    (nn.Conv1d(4, 6, 5, stride=2, dilation=2, groups=2), (1, 4, 20)),
    (nn.Conv1d(3, 4, 3, padding="same", padding_mode="circular"), (1, 3, 12)),
    (nn.Conv2d(4, 6, 3), (1, 4, 9, 10)),
    (nn.Conv2d(4, 6, 1, bias=False), (1, 4, 9, 10)),
    (nn.Conv2d(4, 4, 3, padding=1, groups=4), (1, 4, 9, 10)),
    (nn.Conv2d(4, 8, 3, padding=1, groups=4), (1, 4, 9, 10)),
    (nn.Conv2d(4, 6, (3, 1), stride=(2, 1), padding=(1, 0)), (2, 4, 9, 10)),
    (nn.Conv2d(4, 6, 3, dilation=2, padding=2), (1, 4, 9, 10)),
    (nn.Conv2d(4, 6, 3, groups=2), (1, 4, 9, 10)),
    (nn.Conv2d(4, 6, 3, padding=2, padding_mode="reflect"), (1, 4, 9, 10)),
    (nn.Conv2d(4, 6, 3, padding=1, padding_mode="replicate"), (1, 4, 9, 10)),
    (nn.Conv2d(3, 8, 3, stride=2, padding=1), (1, 3, 16, 16)),
    (nn.Conv3d(2, 3, 3, padding=1), (1, 2, 4, 5, 6)),
    (nn.Conv3d(2, 4, 2, groups=2), (1, 2, 4, 5, 6)),
    (nn.ConvTranspose1d(3, 4, 4, stride=2, padding=1), (1, 3, 7)),
    (nn.ConvTranspose2d(3, 4, 3), (1, 3, 5, 6)),
    (nn.ConvTranspose2d(4, 4, 4, stride=2, padding=1, groups=4), (1, 4, 5, 6)),
    (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (1, 4, 5, 6)),
    (nn.ConvTranspose2d(3, 4, 3, dilation=2), (1, 3, 5, 6)),
    (nn.ConvTranspose3d(2, 3, 2, stride=2), (1, 2, 3, 4, 5)),
    (nn.Unfold(3, padding=1), (1, 2, 5, 6)),
    (nn.Fold((5, 6), 3), (1, 18, 12)),
]
POOLS = [
    (nn.MaxPool1d(3, 2), (1, 3, 12)),
    (nn.MaxPool2d(2), (1, 3, 9, 10)),
    (nn.MaxPool2d(3, 2, 1), (1, 3, 9, 10)),
    (nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 3, 8, 11)),
    (nn.MaxPool2d(3, 1, 1, dilation=2), (1, 3, 9, 10)),
    (nn.MaxPool2d(2, return_indices=True), (1, 3, 8, 10)),
    (nn.MaxPool3d(2), (1, 2, 4, 6, 8)),
    (nn.AvgPool1d(3, 2, 1), (1, 3, 12)),
    (nn.AvgPool2d(2), (1, 3, 9, 10)),
    (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (1, 3, 9, 10)),
    (nn.AvgPool2d(3, 2, 1, ceil_mode=True), (1, 3, 8, 11)),
    (nn.AvgPool2d(3, divisor_override=4), (1, 3, 9, 10)),
    (nn.AvgPool3d(2), (1, 2, 4, 6, 8)),
    (nn.AdaptiveAvgPool1d(5), (1, 3, 12)),
    (nn.AdaptiveAvgPool2d(1), (1, 3, 9, 10)),
    (nn.AdaptiveAvgPool2d((3, 5)), (1, 3, 9, 10)),
    (nn.AdaptiveAvgPool2d((4, 7)), (1, 3, 9, 10)),
    (nn.AdaptiveAvgPool3d(2), (1, 2, 4, 6, 8)),
    (nn.AdaptiveMaxPool2d(3), (1, 3, 9, 12)),
    (nn.AdaptiveMaxPool1d(4), (1, 3, 12)),
    (nn.LPPool2d(2, 2), (1, 3, 8, 8)),
]
PADS = [
    nn.ReflectionPad1d(2),
    nn.ReplicationPad1d((1, 3)),
    nn.ZeroPad1d((2, 0)),
    nn.CircularPad1d(2),
    nn.ConstantPad1d((1, -1), 0.5),
]
PADS_2D = [
    nn.ReflectionPad2d((1, 2, 3, 0)),
    nn.ReplicationPad2d(2),
    nn.ZeroPad2d((1, 0, 2, 1)),
    nn.CircularPad2d((1, 2, 0, 1)),
    nn.ConstantPad2d((0, 1, -2, 1), -1.0),
]
RESIZES = [
    {"size": (13, 17), "mode": "bilinear"},
    {"size": (13, 17), "mode": "bilinear", "align_corners": True},
    {"scale_factor": 2, "mode": "bilinear"},
    {"scale_factor": 2, "mode": "nearest"},
    {"size": (12, 7), "mode": "nearest"},
    {"size": (3, 5), "mode": "nearest"},
    {"scale_factor": 2, "mode": "nearest-exact"},
    {"size": (12, 7), "mode": "nearest-exact"},
    {"size": (14, 21), "mode": "bicubic"},
    {"scale_factor": (1.5, 2.5), "mode": "bilinear"},
    {"size": (5, 4), "mode": "area"},
    {"scale_factor": 0.5, "mode": "bilinear"},
]
RECURRENT = [
    (nn.LSTM(5, 6), (4, 2, 5)),
    (nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True), (2, 4, 5)),
    (nn.GRU(5, 6), (4, 2, 5)),
    (nn.RNN(5, 6, nonlinearity="relu"), (4, 2, 5)),
    (nn.LSTMCell(5, 6), (2, 5)),
    (nn.GRUCell(5, 6), (2, 5)),
    (nn.RNNCell(5, 6), (2, 5)),
]
SHUFFLES = [
    (nn.PixelShuffle(2), (1, 8, 3, 4)),
    (nn.PixelUnshuffle(3), (1, 2, 6, 9)),
    (nn.ChannelShuffle(2), (1, 4, 3, 3)),
    (nn.Flatten(), (2, 3, 4)),
    (nn.Unflatten(1, (2, 2)), (2, 4, 3)),
    (nn.Upsample(scale_factor=2), (1, 2, 3, 4)),
    (nn.UpsamplingBilinear2d(scale_factor=2), (1, 2, 3, 4)),
    (nn.Linear(8, 5), (2, 3, 8)),
    (nn.Linear(8, 5, bias=False), (8,)),
    (nn.CosineSimilarity(), (2, 3, 8)),
    (nn.PairwiseDistance(), (2, 8)),
]
UNARY = {
    name: getattr(torch, name)
    for name in [
        "abs",
        "neg",
        "sign",
        "exp",
        "expm1",
        "log1p",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "square",
        "floor",
        "ceil",
        "round",
        "trunc",
        "frac",
        "erf",
        "atan",
        "sinh",
        "cosh",
        "exp2",
        "isnan",
        "isinf",
        "signbit",
        "logical_not",
        "erfc",
        "asinh",
    ]
}
REDUCTIONS = {
    "sum": lambda x: x.sum(),
    "sum_dim": lambda x: x.sum(1),
    "mean": lambda x: x.mean((0, 2)),
    "max": lambda x: x.max(),
    "max_dim": lambda x: x.max(1),
    "min_dim": lambda x: x.min(-1),
    "amax": lambda x: x.amax((1, 2)),
    "amin": lambda x: x.amin(0),
    "prod": lambda x: x.prod(1),
    "std": lambda x: x.std(),
    "std_dim": lambda x: x.std(1),
    "var": lambda x: x.var(2, unbiased=False),
    "norm": lambda x: x.norm(),
    "norm_dim": lambda x: x.norm(dim=1),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(-1),
    "logsumexp": lambda x: x.logsumexp(1),
    "cumsum": lambda x: x.cumsum(1),
    "all": lambda x: (x > -9).all(),
    "any": lambda x: (x > 1).any(1),
    "topk": lambda x: x.topk(3),
    "sort": lambda x: x.sort(-1),
    "cumprod": lambda x: x.cumprod(1),
    "median": lambda x: x.median(1),
    "count_nonzero": lambda x: torch.count_nonzero(x, 1),
}
MOVES = {
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "reshape": lambda x: x.reshape(6, 8),
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(1, 2),
    "roll_all": lambda x: x.roll(3),
    "chunk": lambda x: x.chunk(2, -1),
    "split": lambda x: x.split([3, 5], 2),
    "stack": lambda x: torch.stack([x, x + 1], 1),
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "repeat": lambda x: x.repeat(1, 2, 1),
    "expand": lambda x: x[:, :1].expand(2, 4, 8),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "tile": lambda x: x.tile(2),
    "slice": lambda x: x[:, 1:, ::2],
    "select": lambda x: x[:, -1],
    "narrow": lambda x: x.narrow(2, 2, 3),
    "unbind": lambda x: x.unbind(1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "unfold": lambda x: x.unfold(2, 3, 2),
    "movedim": lambda x: x.movedim(0, 2),
    "rot90": lambda x: torch.rot90(x, 1, (1, 2)),
    "index_list": lambda x: x[:, [0, 2]],
    "masked_fill": lambda x: x.masked_fill(x > 0, -1.0),
    "where": lambda x: torch.where(x > 0, x, -x),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clamp_min": lambda x: x.clamp_min(0.1),
    "new_zeros": lambda x: x + x.new_zeros(8),
    "full_like": lambda x: torch.full_like(x, 2.0) + x,
    "arange": lambda x: x + torch.arange(8),
    "linspace": lambda x: x * torch.linspace(0, 1, 8),
    "meshgrid": lambda x: x[0] + torch.meshgrid(torch.arange(3), torch.arange(8), indexing="ij")[0],
    "one_hot": lambda x: F.one_hot(x.argmax(-1), 8).float() + x,
    "normalize": lambda x: F.normalize(x, dim=1),
    "pad": lambda x: F.pad(x, (1, 2)),
    "einsum": lambda x: torch.einsum("abc,adc->abd", x, x),
    "interpolate1d": lambda x: F.interpolate(x, 13, mode="linear"),
    "glu": lambda x: F.glu(x, 1 + 1),
    "scatter": lambda x: torch.zeros(2, 3, 8).scatter(
        2, torch.tensor([[[1, 4]]]).expand(2, 3, 2), x[..., :2]
    ),
    "scatter_add": lambda x: torch.zeros(2, 8).index_add(1, torch.tensor([0, 3, 3]), x[..., 0]),
    "gather": lambda x: x.gather(2, torch.tensor([[[7, 0, 2]]]).expand(2, 3, 3)),
    "index_put": lambda x: x.clone().index_put(
        (torch.tensor([0, 1]), torch.tensor([2, 0])), torch.ones(2, 8)
    ),
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
    "embedding": lambda x: F.embedding(x.argmax(-1), torch.arange(24.0).reshape(8, 3)),
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": lambda a, b: a.abs() ** b,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "floor_divide": torch.floor_divide,
    "atan2": torch.atan2,
    "eq": torch.eq,
    "lt": torch.lt,
    "ge": torch.ge,
    "logical_and": lambda a, b: (a > 0) & (b > 0),
    "logical_xor": lambda a, b: (a > 0) ^ (b > 0),
    "matmul": lambda a, b: a @ b.transpose(1, 2),
    "bmm": lambda a, b: torch.bmm(a, b.mT),
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "huber": F.smooth_l1_loss,
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "addcmul": lambda a, b: torch.addcmul(a, a, b),
    "hypot": torch.hypot,
    "cdist": torch.cdist,
    "copysign": torch.copysign,
    "cross": lambda a, b: torch.cross(a.mT[:, :3], b.mT[:, :3], dim=2),
    "dot": lambda a, b: torch.dot(a[0, 0], b[0, 0]),
    "outer": lambda a, b: torch.outer(a[0, 0], b[0, 0]),
}


def sweep():
    """(name, module, inputs) of everything above."""
    for module in ACTIVATIONS:
        yield f"{module}", module, (torch.randn(V) * 2,)
    for group in (NORMS, CONVOLUTIONS, POOLS, RECURRENT, SHUFFLES):
        for module, shape in group:
            two = isinstance(module, nn.CosineSimilarity | nn.PairwiseDistance)
            yield f"{module} {shape}", module, tuple(torch.randn(shape) for _ in range(1 + two))
    for module in PADS:
        yield f"{module}", module, (torch.randn(2, 3, 8),)
    for module in PADS_2D:
        yield f"{module}", module, (image(2, 5, 6),)
    for options in RESIZES:
        yield (
            f"interpolate {options}",
            Call(lambda x, o=options: F.interpolate(x, **o)),
            (image(2, 6, 8),),
        )
    for name, function in UNARY.items():
        positive = name in ("sqrt", "rsqrt", "log1p", "reciprocal")
        x = torch.randn(V) * 2
        yield name, Call(function), (x.abs() + 0.1 if positive else x,)
    for name, function in {**REDUCTIONS, **MOVES}.items():
        yield name, Call(function), (torch.randn(V),)
    for name, function in BINARY.items():
        yield name, Call(function), (torch.randn(V), torch.randn(V))


CASES = {}
torch.manual_seed(0)
for _name, _module, _inputs in sweep():
    CASES[_name.replace("\n", " ")[:90]] = (_module, _inputs)


def test_the_sweep_is_as_wide_as_it_says():
    assert len(CASES) >= 200


@pytest.mark.parametrize("name", CASES)
def test_equal_to_eager_or_refused_by_name(name, refused):
    module, inputs = CASES[name]
    for norm in module.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            norm.running_mean.uniform_(-0.5, 0.5)
            norm.running_var.uniform_(0.5, 2.0)
    try:
        lowered = lower(export(module, *inputs))
    except UnsupportedModelError as error:
        refused(name, str(error))
        return
    assert worst_error(lowered) <= TOLERANCE
