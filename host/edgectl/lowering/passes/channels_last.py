"""The whole graph in one layout: as few bytes as possible are left to transpose.

Sinking transposes can also make things worse, so it is tried on copies of each function: without
and with transposes of other operands. The copy that leaves the least to transpose takes the
function's place; a tie leaves the function as it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from edgectl.lowering.passes.fold_constants import fold_in_function
from edgectl.lowering.passes.sink_transposes import sink_transposes
from edgectl.lowering.passes.values import (
    functions,
    moves_nothing,
    operations,
    permutation,
    tensor_shape,
)

__all__ = ["channels_last", "transposed_elements"]

_UNKNOWN = 64  # stands for a dimension that is not known at compile time


def channels_last(module: Any) -> None:
    """Sinks transposes and cancels them, in place."""
    for function in functions(module):
        best, least = function, transposed_elements(function)
        if not least:
            continue
        for eager in (False, True):
            copy = _attempt(function, eager=eager)
            left = transposed_elements(copy)
            if left < least:
                best, least = copy, left
        if best is not function:
            ir.InsertionPoint(function).insert(best)
            function.erase()


def _attempt(function: Any, *, eager: bool) -> Any:
    copy = function.clone()
    for _ in range(2):  # what the first sweep moved may let the second go on
        sink_transposes(copy, eager=eager)
        with function.context:
            PassManager.parse("func.func(tosa-reduce-transposes,canonicalize,cse)").run(copy)
        fold_in_function(copy)
    return copy


def transposed_elements(function: Any) -> int:
    """Elements that transposes move at run time."""
    total = 0
    for operation in operations(function, "tosa.transpose"):
        shape = [
            _UNKNOWN if d < 0 else d for d in tensor_shape(operation.operands[0]) or (_UNKNOWN,)
        ]
        if not moves_nothing(shape, permutation(operation)):
            total += int(np.prod(shape, dtype=np.int64))
    return total
