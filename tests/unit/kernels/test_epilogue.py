"""Epilogues: what is a requantization is read exactly, what only looks like one is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from edgectl.codegen.kernels.matching import find_sites
from edgectl.codegen.kernels.shapes import Activation, Requantization

BODIES = {
    "fast rounding": """
      %v0 = arith.sitofp %a : i32 to f32
      %v1 = arith.mulf %v0, %s : f32
      %lo = arith.constant -125.0 : f32
      %hi = arith.constant 130.0 : f32
      %v2 = arith.maximumf %v1, %lo : f32
      %v3 = arith.minimumf %v2, %hi : f32
      %magic = arith.constant 12582912.0 : f32
      %v4 = arith.addf %v3, %magic : f32
      %v5 = arith.bitcast %v4 : f32 to i32
      %bits = arith.constant 1262485507 : i32
      %v6 = arith.subi %v5, %bits : i32
      %r = arith.trunci %v6 : i32 to i8""",
    "roundeven": """
      %v0 = arith.sitofp %a : i32 to f32
      %v1 = arith.mulf %v0, %s : f32
      %v2 = math.roundeven %v1 : f32
      %zp = arith.constant -3.0 : f32
      %v3 = arith.addf %v2, %zp : f32
      %lo = arith.constant -128.0 : f32
      %hi = arith.constant 127.0 : f32
      %v4 = arith.maximumf %v3, %lo : f32
      %v5 = arith.minimumf %v4, %hi : f32
      %r = arith.fptosi %v5 : f32 to i8""",
}
OTHERS = {
    "rounds half away from zero": ("math.roundeven", "math.round"),
    "truncates": ("%v2 = math.roundeven %v1 : f32", "%v2 = math.floor %v1 : f32"),
    "wraps instead of clamping": (
        "%r = arith.fptosi %v5 : f32 to i8",
        "%i = arith.fptosi %v3 : f32 to i32\n      %r = arith.trunci %i : i32 to i8",
    ),
}


def _module(body: str, maps: str = "affine_map<(n, h, w, c) -> (n, h, w, c)>") -> str:
    identity = "affine_map<(n, h, w, c) -> (n, h, w, c)>"
    scales = ", ".join(f"{v:e}" for v in np.linspace(0.002, 0.03, 8, dtype=np.float32))
    return f"""
func.func @main(%x: tensor<1x8x8x8xi8>) -> tensor<1x8x8x8xi8> {{
  %w = "tosa.const"() <{{values = dense<3> : tensor<8x1x1x8xi8>}}> : () -> tensor<8x1x1x8xi8>
  %b = "tosa.const"() <{{values = dense<7> : tensor<8xi32>}}> : () -> tensor<8xi32>
  %z = "tosa.const"() <{{values = dense<0> : tensor<1xi8>}}> : () -> tensor<1xi8>
  %f = "tosa.const"() <{{values = dense<[{scales}]> : tensor<8xf32>}}> : () -> tensor<8xf32>
  %acc = "tosa.conv2d"(%x, %w, %b, %z, %z) <{{acc_type = i32, dilation = array<i64: 1, 1>,
    pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>}}> : (tensor<1x8x8x8xi8>,
    tensor<8x1x1x8xi8>, tensor<8xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x8x8x8xi32>
  %e = tensor.empty() : tensor<1x8x8x8xi8>
  %q = linalg.generic {{indexing_maps = [{maps}, affine_map<(n, h, w, c) -> (c)>, {identity}],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
    ins(%acc, %f : tensor<1x8x8x8xi32>, tensor<8xf32>) outs(%e : tensor<1x8x8x8xi8>) {{
    ^bb0(%a: i32, %s: f32, %o: i8):{body}
      linalg.yield %r : i8
  }} -> tensor<1x8x8x8xi8>
  return %q : tensor<1x8x8x8xi8>
}}"""


def _sites(text: str) -> list:
    from iree.compiler import ir

    with ir.Context(), ir.Location.unknown():
        return list(find_sites(ir.Module.parse(text)))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_requantization_is_read_off_whatever_way_it_rounds(body):
    (site,) = _sites(_module(body))
    assert site.convolution is not None, site.reason
    epilogue = site.convolution.epilogue
    assert isinstance(epilogue, Requantization)
    assert (epilogue.zero_point, epilogue.low, epilogue.high) == (-3, -128, 127)
    assert np.array_equal(epilogue.scale, np.linspace(0.002, 0.03, 8, dtype=np.float32))


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
def test_other_arithmetic_stays_with_the_compiler(change):
    body = BODIES["roundeven"]
    assert change[0] in body
    (site,) = _sites(_module(body.replace(*change)))
    assert site.convolution is None
    assert "requantization" in site.reason


def test_a_body_that_transposes_stays_with_the_compiler():
    text = _module(BODIES["roundeven"], maps="affine_map<(n, h, w, c) -> (n, w, h, c)>")
    (site,) = _sites(text)
    assert site.convolution is None


def test_scales_along_another_dimension_stay_with_the_compiler():
    text = _module(BODIES["roundeven"]).replace(
        "affine_map<(n, h, w, c) -> (c)>", "affine_map<(n, h, w, c) -> (w)>"
    )
    (site,) = _sites(text)
    assert site.convolution is None


def test_matrix_product_with_bias_and_clamp_behind_a_reshape():
    text = """
func.func @main(%x: tensor<1x6x8xf32>) -> tensor<1x2x3x4xf32> {
  %w = "tosa.const"() <{values = dense_resource<w> : tensor<1x8x4xf32>}> : () -> tensor<1x8x4xf32>
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %b = "tosa.const"() <{values = dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>}> : () -> tensor<4xf32>
  %s = "tosa.const_shape"() <{values = dense<[1, 2, 3, 4]> : tensor<4xindex>}> : () -> !tosa.shape<4>
  %t = "tosa.const_shape"() <{values = dense<[1, 1, 1, 4]> : tensor<4xindex>}> : () -> !tosa.shape<4>
  %m = "tosa.matmul"(%x, %w, %z, %z) : (tensor<1x6x8xf32>, tensor<1x8x4xf32>, tensor<1xf32>,
    tensor<1xf32>) -> tensor<1x6x4xf32>
  %r = "tosa.reshape"(%m, %s) : (tensor<1x6x4xf32>, !tosa.shape<4>) -> tensor<1x2x3x4xf32>
  %c = "tosa.reshape"(%b, %t) : (tensor<4xf32>, !tosa.shape<4>) -> tensor<1x1x1x4xf32>
  %a = "tosa.add"(%r, %c) : (tensor<1x2x3x4xf32>, tensor<1x1x1x4xf32>) -> tensor<1x2x3x4xf32>
  %k = "tosa.clamp"(%a) <{min_val = 0.0 : f32, max_val = 6.0 : f32,
    nan_mode = #tosa.nan_mode<PROPAGATE>}> : (tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>
  return %k : tensor<1x2x3x4xf32>
}
{-# dialect_resources: { builtin: { w: "0x04000000%s" } } #-}"""
    weights = np.arange(32, dtype=np.float32).reshape(8, 4)
    (site,) = _sites(text.replace('%s" }', weights.tobytes().hex() + '" }'))
    conv = site.convolution
    assert conv is not None, site.reason
    assert np.array_equal(conv.weights[:, 0, 0, :], weights.T)
    assert np.array_equal(conv.bias, np.array([1, 2, 3, 4], np.float32))
    assert conv.epilogue == Activation(low=0.0, high=6.0)
    assert conv.geometry.rows == 6
    assert len(site.operations) == 4


HALF = """
func.func @main(%x: tensor<1x1x8xf16>) -> tensor<1x1x8x{end}> {{
  %w = "tosa.const"() <{{values = dense<0.5> : tensor<1x8x8xf16>}}> : () -> tensor<1x8x8xf16>
  %z = "tosa.const"() <{{values = dense<0.0> : tensor<1xf16>}}> : () -> tensor<1xf16>
  %acc = "tosa.matmul"(%x, %w, %z, %z) : (tensor<1x1x8xf16>, tensor<1x8x8xf16>,
    tensor<1xf16>, tensor<1xf16>) -> tensor<1x1x8xf32>
  {tail}
}}"""


def test_half_sums_in_single_precision_are_taken_up_to_their_cast():
    tail = """%r = "tosa.cast"(%acc) : (tensor<1x1x8xf32>) -> tensor<1x1x8xf16>
  return %r : tensor<1x1x8xf16>"""
    (site,) = _sites(HALF.format(end="f16", tail=tail))
    assert site.convolution is not None
    assert [op.name for op in site.operations] == ["tosa.matmul", "tosa.cast"]


def test_half_sums_that_stay_in_single_precision_are_left_alone():
    (site,) = _sites(HALF.format(end="f32", tail="return %acc : tensor<1x1x8xf32>"))
    assert site.convolution is None
    assert "f32" in site.reason
