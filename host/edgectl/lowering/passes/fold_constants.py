"""Constants are transposed and reshaped at compile time; unit transposes become reshapes."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch_mlir import ir

from edgectl.lowering.integer.mlir_builder import TosaBuilder
from edgectl.lowering.passes.values import (
    constant_array,
    functions,
    moves_nothing,
    operations,
    permutation,
    producer,
    static_shape,
)

__all__ = ["fold_constants", "fold_in_function", "unit_transposes"]

_SMALL = 1 << 20  # elements that may be stored twice, once in each form


def fold_constants(module: Any) -> None:
    """Folds reshapes and transposes of constants, in place."""
    for function in functions(module):
        fold_in_function(function)


def fold_in_function(function: Any) -> None:
    """The same for one function."""
    for operation in operations(function, "tosa.transpose", "tosa.reshape"):
        source = operation.operands[0]
        shape = static_shape(operation.results[0])
        constant = producer(source, "tosa.const")
        if shape is None or constant is None:
            continue
        if len(list(source.uses)) > 1 and np.prod(shape, dtype=np.int64) > _SMALL:
            continue
        attribute = constant.attributes["values"]
        builder = TosaBuilder(operation)
        if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
            kind = operation.results[0].type
            splat = ir.DenseElementsAttr.get_splat(kind, attribute.get_splat_value())
            new = builder.op("tosa.const", kind, [], {"values": splat})
        else:
            array = constant_array(source)
            if array is None:
                continue
            moved = (
                array.reshape(shape)
                if operation.name == "tosa.reshape"
                else array.transpose(permutation(operation))
            )
            new = builder.constant(np.ascontiguousarray(moved))
        if new.type != operation.results[0].type:
            new.owner.erase()
            continue
        operation.results[0].replace_all_uses_with(new)
        operation.erase()
        if not list(constant.results[0].uses):
            constant.erase()


def unit_transposes(module: Any) -> None:
    """Transposes that move only dimensions of size one become reshapes: no byte moves."""
    for function in functions(module):
        for operation in operations(function, "tosa.transpose"):
            source = operation.operands[0]
            before, after = static_shape(source), static_shape(operation.results[0])
            if before is None or after is None or not moves_nothing(before, permutation(operation)):
                continue
            new = TosaBuilder(operation).reshape(source, after)
            operation.results[0].replace_all_uses_with(new)
            operation.erase()
