"""``transpose(pad(x))`` becomes ``pad(transpose(x))``: fewer bytes to move, and the padding comes
to stand right before the convolution, which takes it over."""

from __future__ import annotations

from typing import Any

from torch_mlir import ir

from edgectl.lowering.integer.mlir_builder import TosaBuilder
from edgectl.lowering.passes.values import (
    functions,
    operations,
    permutation,
    producer,
    shape_values,
    static_shape,
)

__all__ = ["pads_after_transposes"]


def pads_after_transposes(module: Any) -> None:
    """Swaps a padding and the transpose that alone reads it, in place."""
    for function in functions(module):
        for operation in operations(function, "tosa.transpose"):
            _swap(operation)


def _swap(operation: Any) -> None:
    pad = producer(operation.operands[0], "tosa.pad")
    if pad is None or len(list(pad.results[0].uses)) != 1:
        return
    order = permutation(operation)
    shape, amounts = static_shape(pad.operands[0]), shape_values(pad.operands[1])
    if shape is None or amounts is None or len(amounts) != 2 * len(order):
        return
    builder = TosaBuilder(operation)
    kind = ir.RankedTensorType(operation.results[0].type)
    inner = builder.op(
        "tosa.transpose",
        builder.tensor_type([shape[d] for d in order], kind.element_type),
        [pad.operands[0]],
        {"perms": operation.attributes["perms"]},
    )
    moved = [amounts[2 * d + side] for d in order for side in (0, 1)]
    rest = [pad.operands[i] for i in range(2, len(pad.operands))]
    new = builder.op("tosa.pad", kind, [inner, builder.shape_constant(moved), *rest])
    operation.results[0].replace_all_uses_with(new)
    operation.erase()
    pad.erase()
