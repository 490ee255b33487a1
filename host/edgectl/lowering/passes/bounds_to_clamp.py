"""``minimum(maximum(x, a), b)`` with constant scalars becomes one ``tosa.clamp``.

ReLU6 and its kind arrive as two operations with broadcast constants; as a clamp they are one
operation without operands besides ``x``, which every later pass and the kernels understand.
"""

from __future__ import annotations

import math
from typing import Any

from torch_mlir import ir

from edgectl.lowering.integer.mlir_builder import TosaBuilder
from edgectl.lowering.passes.values import (
    element_name,
    functions,
    operations,
    producer,
    same_value,
    scalar,
    tensor_shape,
)

__all__ = ["bounds_to_clamp"]

_INTEGER_LIMITS = {"i8": (-(2**7), 2**7 - 1), "i16": (-(2**15), 2**15 - 1)}
_FLOATS = ("f32", "f16")


def bounds_to_clamp(module: Any) -> None:
    """Rewrites minima and maxima with constant scalars, in place."""
    for function in functions(module):
        for operation in operations(function, "tosa.maximum", "tosa.minimum"):
            _rewrite(operation)


def _rewrite(operation: Any) -> None:
    bound = _constant_bound(operation)
    if bound is None or _ignores_nan(operation):
        return
    value, number = bound
    element = element_name(value)
    if element in _FLOATS:
        if math.isnan(number):
            return
        low, high = -math.inf, math.inf
    elif element in _INTEGER_LIMITS:
        low, high = _INTEGER_LIMITS[element]
    else:
        return  # TOSA has no clamp of other types
    inner = producer(value, "tosa.clamp")
    source = value
    # The inner clamp may have other readers: it then stays for them.
    if inner is not None and not _ignores_nan(inner):
        source = inner.operands[0]
        low, high = _bounds(inner)
    if operation.name == "tosa.maximum":
        low, high = max(low, number), max(high, number)
    else:
        low, high = min(low, number), min(high, number)
    builder = TosaBuilder(operation)
    kind = ir.RankedTensorType(value.type).element_type
    attributes = {
        "min_val": _number(kind, low, element),
        "max_val": _number(kind, high, element),
    }
    new = builder.op("tosa.clamp", operation.results[0].type, [source], attributes)
    operation.results[0].replace_all_uses_with(new)
    operation.erase()
    if inner is not None and not list(inner.results[0].uses):
        inner.erase()


def _constant_bound(operation: Any) -> tuple[Any, float] | None:
    """The variable operand and the constant one, when the result has the variable's shape."""
    first, second = operation.operands[0], operation.operands[1]
    for value, constant in ((first, second), (second, first)):
        number = scalar(constant)
        if number is None or same_value(value, constant) or producer(value, "tosa.const"):
            continue
        if tensor_shape(value) == tensor_shape(operation.results[0]):
            return value, number
    return None


def _ignores_nan(operation: Any) -> bool:
    """Ignoring a NaN gives the constant in one form and the lower bound in the other."""
    return "nan_mode" in operation.attributes and "IGNORE" in str(operation.attributes["nan_mode"])


def _bounds(clamp: Any) -> tuple[float, float]:
    return clamp.attributes["min_val"].value, clamp.attributes["max_val"].value


def _number(kind: Any, number: float, element: str) -> Any:
    with kind.context, ir.Location.unknown():
        if element in _FLOATS:
            return ir.FloatAttr.get(kind, float(number))
        return ir.IntegerAttr.get(kind, int(number))
