"""A convolution in NumPy, written for clarity: the judge of every kernel."""

from __future__ import annotations

import numpy as np

from edgectl.codegen.kernels.epilogue import requantize
from edgectl.codegen.kernels.shapes import Activation, Convolution, Geometry, Requantization


def convolve(conv: Convolution, data: np.ndarray) -> np.ndarray:
    """[batch, in_h, in_w, in_c] -> [batch, out_h, out_w, out_c], sums in i64 or f64."""
    g = conv.geometry
    wide = np.int64 if conv.element == "i8" else np.float64
    bottom = max(
        0, (g.out_h - 1) * g.stride_h + (g.k_h - 1) * g.dilation_h + 1 - g.pad_top - g.in_h
    )
    right = max(
        0, (g.out_w - 1) * g.stride_w + (g.k_w - 1) * g.dilation_w + 1 - g.pad_left - g.in_w
    )
    padded = np.pad(
        data.astype(wide),
        ((0, 0), (g.pad_top, bottom), (g.pad_left, right), (0, 0)),
        constant_values=conv.pad_value,
    )
    sums = np.zeros((g.batch, g.out_h, g.out_w, g.out_c), wide) + conv.bias.astype(wide)
    weights = conv.weights.astype(wide)
    for ky in range(g.k_h):
        for kx in range(g.k_w):
            y, x = ky * g.dilation_h, kx * g.dilation_w
            window = padded[
                :,
                y : y + (g.out_h - 1) * g.stride_h + 1 : g.stride_h,
                x : x + (g.out_w - 1) * g.stride_w + 1 : g.stride_w,
            ]
            sums += window * weights[ky, kx] if g.depthwise else window @ weights[:, ky, kx, :].T
    if isinstance(conv.epilogue, Requantization):
        return requantize(sums.astype(np.int32), conv.epilogue)
    epilogue: Activation = conv.epilogue
    return np.clip(sums, epilogue.low, epilogue.high)


def make_case(
    rng: np.random.Generator,
    element: str,
    geometry: Geometry,
    *,
    extreme: bool = False,
    wide_scale: bool = False,
) -> tuple[Convolution, np.ndarray]:
    """Random weights and input; ``extreme`` puts every value at an end of its range."""
    g = geometry
    depth = g.taps if g.depthwise else g.taps * g.in_c
    shape = (g.k_h, g.k_w, g.out_c) if g.depthwise else (g.out_c, g.k_h, g.k_w, g.in_c)
    size = (g.batch, g.in_h, g.in_w, g.in_c)
    if element == "i8":
        if extreme:
            weights = rng.choice(np.array([-127, 127], np.int8), shape)
            data = rng.choice(np.array([-128, 127], np.int8), size)
            data[:, : g.in_h // 2] = -128
            weights[..., : max(1, shape[-1] // 2)] = -127
        else:
            weights = rng.integers(-127, 128, shape).astype(np.int8)
            data = rng.integers(-128, 128, size).astype(np.int8)
        spread = 400.0 if wide_scale else 60.0
        scale = (rng.uniform(0.3, 2.0, g.out_c) * spread / (127 * 74 * depth**0.5)).astype(
            np.float32
        )
        zero_point = int(rng.integers(-128, 128))
        low = int(rng.choice([-128, zero_point]))
        epilogue: Requantization | Activation = Requantization(
            scale=scale, zero_point=zero_point, low=min(low, 126), high=127
        )
        bias = rng.integers(-20_000, 20_000, g.out_c).astype(np.int32)
        pad_value = int(rng.integers(-128, 128))
    else:
        dtype = np.float16 if element == "f16" else np.float32
        weights = (rng.standard_normal(shape) * (1 / depth) ** 0.5).astype(dtype)
        data = rng.standard_normal(size).astype(dtype)
        bias = rng.standard_normal(g.out_c).astype(dtype)
        epilogue = Activation(low=0.0, high=6.0) if rng.integers(2) else Activation()
        pad_value = 0
    conv = Convolution(
        element=element,
        geometry=g,
        weights=weights,
        bias=bias,
        epilogue=epilogue,
        pad_value=pad_value,
    )
    return conv, data


def _out(size: int, k: int, stride: int, dilation: int, before: int, after: int) -> int:
    return (size + before + after - dilation * (k - 1) - 1) // stride + 1


def geometry(
    size: tuple[int, int],
    channels: int,
    out_c: int,
    *,
    k: tuple[int, int] = (1, 1),
    stride: int = 1,
    dilation: int = 1,
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    batch: int = 1,
    depthwise: bool = False,
) -> Geometry:
    """A geometry from what a model states; ``pad`` is top, bottom, left, right."""
    return Geometry(
        batch=batch,
        in_h=size[0],
        in_w=size[1],
        in_c=channels,
        out_h=_out(size[0], k[0], stride, dilation, pad[0], pad[1]),
        out_w=_out(size[1], k[1], stride, dilation, pad[2], pad[3]),
        out_c=out_c,
        k_h=k[0],
        k_w=k[1],
        stride_h=stride,
        stride_w=stride,
        dilation_h=dilation,
        dilation_w=dilation,
        pad_top=pad[0],
        pad_left=pad[2],
        depthwise=depthwise,
    )
