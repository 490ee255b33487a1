"""Packing: every weight lands where a kernel looks for it, and limits are proven, not hoped for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgectl.codegen.kernels.blob import (
    Layout,
    fits_narrow,
    fits_small,
    pack_columns,
    pack_depthwise,
    pack_panels,
    plan,
)
from edgectl.codegen.kernels.shapes import Activation, Convolution, Geometry, Requantization
from edgectl.codegen.kernels.winograd import refusal, transformed

MLAL = Layout(tile_rows=4, tile_cols=16, least_cols=8, interleave=2, depth_step=8, element_bytes=1)
FLOAT = Layout(tile_rows=8, tile_cols=8, least_cols=8, interleave=1, depth_step=4, element_bytes=4)


def _convolution(out_c: int, k: int, in_c: int, size: int = 6, element: str = "i8") -> Convolution:
    rng = np.random.default_rng(out_c * 100 + k * 10 + in_c)
    dtype = np.int8 if element == "i8" else np.float32
    weights = rng.integers(-127, 128, (out_c, k, k, in_c)).astype(dtype)
    return Convolution(
        element=element,
        geometry=Geometry(
            batch=1,
            in_h=size,
            in_w=size,
            in_c=in_c,
            out_h=size,
            out_w=size,
            out_c=out_c,
            k_h=k,
            k_w=k,
            pad_top=k // 2,
            pad_left=k // 2,
        ),
        weights=weights,
        bias=np.zeros(out_c, np.int32 if element == "i8" else np.float32),
        epilogue=Requantization(
            scale=np.full(out_c, 1e-3, np.float32), zero_point=0, low=-128, high=127
        )
        if element == "i8"
        else Activation(),
    )


@settings(max_examples=40, deadline=None)
@given(out_c=st.integers(1, 40), k=st.sampled_from([1, 3]), in_c=st.integers(1, 20))
def test_panels_hold_each_weight_once_and_zeros_elsewhere(out_c, k, in_c):
    conv = _convolution(out_c, k, in_c)
    split = plan(conv, MLAL, cores=4)
    packed = np.frombuffer(pack_panels(conv.weights, MLAL, split), np.int8)
    flat = conv.weights.reshape(out_c, split.taps, -1)
    at = 0
    for first in range(0, out_c, 16):
        width = 8 if out_c - first <= 8 else 16
        panel = packed[at : at + width * split.taps * split.depth]
        panel = panel.reshape(split.taps, split.depth // 2, width, 2)
        at += panel.size
        for c in range(width):
            for tap in range(split.taps):
                row = panel[tap, :, c].reshape(-1)
                known = flat[first + c, tap] if first + c < out_c else np.zeros(0, np.int8)
                assert np.array_equal(row[: known.size], known)
                assert not row[known.size :].any()
    assert at == packed.size


def test_depthwise_and_column_packing_put_taps_side_by_side():
    weights = np.arange(1, 1 + 5 * 5 * 8, dtype=np.int16).astype(np.int8).reshape(5, 5, 8)
    columns = np.frombuffer(pack_columns(weights), np.int8)
    assert np.array_equal(columns[:160].reshape(5, 8, 4)[2, 3], weights[:4, 2, 3])
    assert np.array_equal(columns[160:].reshape(5, 8)[4], weights[4, 4])
    layout = Layout(
        tile_rows=4, tile_cols=16, least_cols=16, interleave=1, depth_step=1, element_bytes=1
    )
    packed = np.frombuffer(pack_depthwise(weights, layout), np.int8).reshape(1, 25, 16)
    assert np.array_equal(packed[0, 7, :8], weights[1, 2])
    assert not packed[0, :, 8:].any()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 120),
    out_c=st.integers(1, 1300),
    in_c=st.sampled_from([3, 8, 64, 960]),
    k=st.sampled_from([1, 3]),
    cores=st.integers(1, 4),
)
def test_the_grid_covers_every_output_once(rows, out_c, in_c, k, cores):
    conv = Convolution(
        element="f32",
        geometry=Geometry(
            batch=1,
            in_h=1,
            in_w=rows,
            in_c=in_c,
            out_h=1,
            out_w=rows,
            out_c=out_c,
            k_h=k,
            k_w=k,
            pad_top=k // 2,
            pad_left=k // 2,
        ),
        weights=np.zeros((1, 1, 1, 1), np.float32),
        bias=np.zeros(1, np.float32),
        epilogue=Activation(),
    )
    split = plan(conv, FLOAT, cores=cores)
    if split is None:
        pytest.skip("a row that does not fit the stack buffer")
    assert split.cols_per_group % FLOAT.tile_cols == 0 or split.col_groups == 1
    row_groups = split.groups // split.col_groups
    assert row_groups * split.col_groups == split.groups
    assert (row_groups - 1) * split.rows_per_group < rows <= row_groups * split.rows_per_group
    assert (split.col_groups - 1) * split.cols_per_group < out_c
    assert out_c <= split.col_groups * split.cols_per_group
    assert split.block_rows * split.taps <= 1024
    if split.mode == 2:
        assert split.block_rows * split.depth * 4 <= 16384


def test_the_narrow_form_is_used_only_when_no_input_can_leave_its_range():
    small = _convolution(8, 1, 16)
    assert fits_narrow(small)
    deep = _convolution(8, 3, 512)  # 4608 * 127 * 128 is beyond 2**22 for these weights
    assert not fits_narrow(deep)
    steep = Convolution(
        element="i8",
        geometry=small.geometry,
        weights=small.weights,
        bias=small.bias,
        epilogue=Requantization(
            scale=np.full(8, 1.0, np.float32), zero_point=0, low=-128, high=127
        ),
    )
    assert not fits_narrow(steep)


def test_without_saturation_only_when_no_scaled_sum_can_leave_16_bits():
    deep = _convolution(8, 3, 512)
    assert not fits_narrow(deep)
    gentle = replace(deep, epilogue=replace(deep.epilogue, scale=np.full(8, 1e-5, np.float32)))
    assert fits_small(gentle)
    assert not fits_small(replace(deep, epilogue=replace(deep.epilogue, scale=np.ones(8, "f4"))))


def test_rows_are_cut_so_that_no_sliver_is_left():
    conv = Convolution(
        element="f32",
        geometry=Geometry(batch=1, in_h=7, in_w=7, in_c=960, out_h=7, out_w=7, out_c=320),
        weights=np.zeros((1, 1, 1, 1), np.float32),
        bias=np.zeros(1, np.float32),
        epilogue=Activation(),
    )
    split = plan(conv, FLOAT, cores=4)
    assert split is not None
    heights = [
        min(split.rows_per_group, 49 - first) for first in range(0, 49, split.rows_per_group)
    ]
    blocks = [min(split.block_rows, h - b) for h in heights for b in range(0, h, split.block_rows)]
    assert min(blocks) >= 5


def test_depthwise_workgroups_own_whole_lines():
    conv = Convolution(
        element="f32",
        geometry=Geometry(
            batch=1,
            in_h=14,
            in_w=14,
            in_c=480,
            out_h=14,
            out_w=14,
            out_c=480,
            k_h=5,
            k_w=5,
            pad_top=2,
            pad_left=2,
            depthwise=True,
        ),
        weights=np.zeros((5, 5, 480), np.float32),
        bias=np.zeros(480, np.float32),
        epilogue=Activation(),
    )
    split = plan(conv, FLOAT, cores=4)
    assert split is not None
    assert split.groups > 1
    assert split.rows_per_group % 14 == 0


def test_winograd_weights_give_the_convolution_back():
    rng = np.random.default_rng(4)
    weights = rng.standard_normal((8, 3, 3, 4))
    patch = rng.standard_normal((6, 6, 4))
    a, b = 0.5**0.5, 2**0.5
    forward = np.array(
        [
            [1, 0, -2.5, 0, 1, 0],
            [0, -b, -2, a, 1, 0],
            [0, b, -2, -a, 1, 0],
            [0, -a, -0.5, b, 1, 0],
            [0, a, -0.5, -b, 1, 0],
            [0, 1, 0, -2.5, 0, 1],
        ]
    )
    inverse = np.array([[p**k for p in (0, a, -a, b, -b)] + [float(k == 3)] for k in range(4)])
    moved = np.einsum("pi,ijc,qj->pqc", forward, patch, forward).reshape(36, 4)
    products = np.einsum("qc,qco->qo", moved, transformed(weights)).reshape(6, 6, 8)
    got = np.einsum("ip,pqo,jq->ijo", inverse, products, inverse)
    want = sum(
        np.einsum("ijc,oc->ijo", patch[y : y + 4, x : x + 4], weights[:, y, x])
        for y in range(3)
        for x in range(3)
    )
    assert np.allclose(got, want, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stride_h": 2, "stride_w": 2}, "stride 1"),
        ({"in_c": 6}, "by four"),
        ({"in_c": 256}, "up to 128"),
        ({"out_c": 12}, "by eight"),
        ({"out_h": 4, "out_w": 4}, "cost what they save"),
    ],
)
def test_winograd_is_refused_where_it_cannot_or_does_not_pay(change, reason):
    good = Geometry(
        batch=1,
        in_h=28,
        in_w=28,
        in_c=64,
        out_h=28,
        out_w=28,
        out_c=64,
        k_h=3,
        k_w=3,
        pad_top=1,
        pad_left=1,
    )
    assert refusal(good) == ""
    assert reason in refusal(replace(good, **change))
