"""1x1 convolutions with stride one become matrix products with constant weights.

``[N,H,W,I] * [O,1,1,I]`` is ``[1,N*H*W,I] x [1,I,O]``. IREE tiles and packs matrix products well
and convolutions badly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch_mlir import ir

from edgectl.lowering.integer.mlir_builder import TosaBuilder
from edgectl.lowering.passes.values import (
    attribute_integers,
    constant_array,
    element_name,
    functions,
    operations,
    scalar,
    static_shape,
)

__all__ = ["pointwise_to_matmul"]


def pointwise_to_matmul(module: Any) -> None:
    """Rewrites float 1x1 convolutions with constant weights, in place."""
    for function in functions(module):
        for operation in operations(function, "tosa.conv2d"):
            _rewrite(operation)


def _rewrite(operation: Any) -> None:
    source, weight, bias = (operation.operands[i] for i in range(3))
    if not is_plain_float(operation):
        return
    shape, result = static_shape(source), static_shape(operation.results[0])
    weights = static_shape(weight)
    if shape is None or result is None or weights is None or weights[1:3] != [1, 1]:
        return
    if attribute_integers(operation, "stride") != [1, 1]:
        return
    if any(attribute_integers(operation, "pad")):
        return
    matrix = constant_array(weight)
    if matrix is None:
        return
    batch, height, width, channels = result
    builder = TosaBuilder(operation)
    rows = builder.reshape(source, [1, batch * height * width, shape[3]])
    columns = matrix.reshape(channels, shape[3]).T[None]
    new = product_with_bias(builder, rows, columns, bias, operation)
    operation.results[0].replace_all_uses_with(builder.reshape(new, result))
    operation.erase()


def is_plain_float(operation: Any) -> bool:
    """A convolution in f32 throughout, without zero points."""
    values = [operation.operands[i] for i in range(3)] + [operation.results[0]]
    if any(element_name(v) != "f32" for v in values) or str(_accumulator(operation)) != "f32":
        return False
    return all(scalar(operation.operands[i]) == 0 for i in range(3, len(operation.operands)))


def _accumulator(operation: Any) -> Any:
    if "acc_type" not in operation.attributes:
        return "f32"
    return operation.attributes["acc_type"].value


def product_with_bias(
    builder: TosaBuilder, rows: Any, columns: Any, bias: Any, convolution: Any
) -> Any:
    """``[1,M,K] x [1,K,N] + bias``; the bias of a convolution has N elements or one."""
    kind = ir.RankedTensorType(convolution.results[0].type).element_type
    m, n = builder.shape_of(rows)[1], columns.shape[2]
    zero = builder.scalar(0, "f32")
    product = builder.op(
        "tosa.matmul",
        builder.tensor_type([1, m, n], kind),
        [rows, builder.constant(np.ascontiguousarray(columns)), zero, zero],
    )
    if scalar(bias) == 0:
        return product
    lanes = builder.shape_of(bias)[0]
    return builder.binary("tosa.add", product, builder.reshape(bias, [1, 1, lanes]))
