"""Small models that take their time, or carry as much data as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tiny_bundles import compile_mlir, npy, write

from edgectl_runner.contract import EntryPoint, GoldenCall, OutputBinding, TensorSpec

# Averages a constant matrix with itself, again and again: 512 is a power of two, so y is x exactly.
SLOW = """
func.func @main(%x: tensor<1xf32>) -> tensor<1xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant ROUNDS : index
  %zero = arith.constant 0.0 : f32
  %mean = arith.constant dense<0.001953125> : tensor<512x512xf32>
  %v = tensor.extract %x[%c0] : tensor<1xf32>
  %i = tensor.empty() : tensor<512x512xf32>
  %m = linalg.fill ins(%v : f32) outs(%i : tensor<512x512xf32>) -> tensor<512x512xf32>
  %r = scf.for %k = %c0 to %n step %c1 iter_args(%a = %m) -> (tensor<512x512xf32>) {
    %e = tensor.empty() : tensor<512x512xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<512x512xf32>) -> tensor<512x512xf32>
    %p = linalg.matmul ins(%mean, %a : tensor<512x512xf32>, tensor<512x512xf32>)
        outs(%f : tensor<512x512xf32>) -> tensor<512x512xf32>
    scf.yield %p : tensor<512x512xf32>
  }
  %y = tensor.extract_slice %r[0, 0] [1, 1] [1, 1] : tensor<512x512xf32> to tensor<1xf32>
  return %y : tensor<1xf32>
}
"""

# Much data in and out, little computation.
PICTURE = """
func.func @main(%x: tensor<1x3x224x224xf32>) -> tensor<1x3x224x224xf32> {
  %one = arith.constant dense<1.0> : tensor<1x3x224x224xf32>
  %y = arith.addf %x, %one : tensor<1x3x224x224xf32>
  return %y : tensor<1x3x224x224xf32>
}
"""

# Much data in, little out: sums of the rows of a picture.
ROW_SUMS = """
func.func @main(%x: tensor<1x3x224x224xf32>) -> tensor<1x3x224xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x3x224xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x3x224xf32>) -> tensor<1x3x224xf32>
  %y = linalg.reduce ins(%x : tensor<1x3x224x224xf32>) outs(%f : tensor<1x3x224xf32>)
      dimensions = [3] (%a: f32, %b: f32) {
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  }
  return %y : tensor<1x3x224xf32>
}
"""


def _bundle(path: Path, text: str, x: np.ndarray, y: np.ndarray) -> Path:
    files = {"module.vmfb": compile_mlir(text), "x.npy": npy(x), "y.npy": npy(y)}
    spec = TensorSpec(name="x", shape=x.shape, dtype="float32")
    out = TensorSpec(name="y", shape=y.shape, dtype="float32")
    entry = EntryPoint(
        function="main",
        inputs=(spec,),
        outputs=(OutputBinding(name="y", source="result", index=0, spec=out),),
        result_count=1,
    )
    return write(
        path, files, [entry], [GoldenCall(entry_point=0, inputs=("x.npy",), outputs=("y.npy",))]
    )


def slow_bundle(path: Path, *, rounds: int = 40) -> Path:
    """y = x on one float, after some 300 ms."""
    x = np.ones(1, np.float32)
    return _bundle(path, SLOW.replace("ROUNDS", str(rounds)), x, x)


def picture_bundle(path: Path) -> Path:
    """y = x + 1 on 1x3x224x224 floats."""
    x = np.arange(3 * 224 * 224, dtype=np.float32).reshape(1, 3, 224, 224)
    return _bundle(path, PICTURE, x, x + 1)


def classifier_bundle(path: Path) -> Path:
    """Sums over the last axis of 1x3x224x224 floats, as a classifier has much in and little out."""
    x = np.arange(3 * 224 * 224, dtype=np.float32).reshape(1, 3, 224, 224) / 1024
    return _bundle(path, ROW_SUMS, x, x.sum(axis=3, dtype=np.float64).astype(np.float32))
