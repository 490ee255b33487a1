"""Reading TOSA modules: shapes, constants, producers and users of values.

The isinstance of MLIR types differs between releases of the bindings; the printed form does not,
so types are told apart by their text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

__all__ = [
    "attribute_integers",
    "constant_array",
    "element_name",
    "functions",
    "inverse",
    "moves_nothing",
    "operations",
    "permutation",
    "producer",
    "rank",
    "same_value",
    "scalar",
    "shape_values",
    "static_shape",
    "tensor_shape",
]

_RESOURCE = re.compile(r'"0x([0-9A-Fa-f]+)"')
_ELEMENTS = {
    "f32": np.float32,
    "f16": np.float16,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
}


def functions(module: Any) -> list[Any]:
    """The functions that have a body."""
    return [
        view.operation
        for view in module.body.operations
        if view.operation.name == "func.func" and len(view.operation.regions[0].blocks) == 1
    ]


def operations(function: Any, *names: str) -> Iterator[Any]:
    """Operations of a function's body in program order, listed before the first is given."""
    for view in list(function.regions[0].blocks[0].operations):
        if not names or view.operation.name in names:
            yield view.operation


def producer(value: Any, *names: str) -> Any | None:
    """The operation that makes a value, when it is one of ``names`` (or any, without names)."""
    owner = value.owner
    if not isinstance(owner, ir.OpView | ir.Operation):
        return None
    operation = owner.operation
    return operation if not names or operation.name in names else None


def same_value(first: Any, second: Any) -> bool:
    """Whether two handles mean one value."""
    return bool(first == second)


def tensor_shape(value: Any) -> list[int] | None:
    """The shape, dynamic dimensions negative; ``None`` for what is not a ranked tensor."""
    text = str(value.type)
    if not text.startswith("tensor<") or text.startswith("tensor<*"):
        return None
    kind = ir.RankedTensorType(value.type)
    return [-1 if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank)]


def static_shape(value: Any) -> list[int] | None:
    """The shape when every dimension is known."""
    shape = tensor_shape(value)
    return None if shape is None or any(d < 0 for d in shape) else shape


def rank(value: Any) -> int:
    """Number of dimensions; -1 for what is not a ranked tensor."""
    shape = tensor_shape(value)
    return -1 if shape is None else len(shape)


def element_name(value: Any) -> str:
    """``f32``, ``i8``, ... of a tensor value."""
    return str(ir.RankedTensorType(value.type).element_type)


def constant_array(value: Any) -> NDArray[Any] | None:
    """The values of a ``tosa.const``; ``None`` for anything else and for types NumPy lacks."""
    operation = producer(value, "tosa.const")
    if operation is None:
        return None
    shape, element = static_shape(value), element_name(value)
    if shape is None or element not in _ELEMENTS:
        return None
    dtype = np.dtype(_ELEMENTS[element])
    attribute = operation.attributes["values"]
    if isinstance(attribute, ir.DenseElementsAttr):
        array = np.array(attribute)
        return array if list(array.shape) == shape and array.dtype == dtype else None
    return _resource_array(operation, shape, dtype)


def _resource_array(operation: Any, shape: list[int], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """A ``dense_resource``: the bindings show its bytes only in print, so it is printed alone."""
    if not str(operation.attributes["values"].type).startswith("tensor<"):
        return None
    with operation.location:
        alone = ir.Module.create()
        with ir.InsertionPoint(alone.body):
            operation.clone()
    found = _RESOURCE.findall(alone.operation.get_asm(enable_debug_info=False))
    if len(found) != 1:
        return None
    data = bytes.fromhex(found[0])[4:]  # the first word is the alignment
    if len(data) != int(np.prod(shape, dtype=np.int64)) * dtype.itemsize:
        return None
    return np.frombuffer(data, dtype).reshape(shape)


def scalar(value: Any) -> float | int | None:
    """The one number that a constant consists of, whatever its shape."""
    operation = producer(value, "tosa.const")
    if operation is None:
        return None
    attribute = operation.attributes["values"]
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        text = element_name(value)
        if text not in _ELEMENTS:
            return None
        number = attribute.get_splat_value()
        return float(number.value) if text.startswith("f") else int(number.value)
    shape = static_shape(value)
    if shape is None or int(np.prod(shape, dtype=np.int64)) != 1:
        return None
    array = constant_array(value)
    return None if array is None else array.reshape(-1)[0].item()


def shape_values(value: Any) -> list[int] | None:
    """The numbers of a ``tosa.const_shape``."""
    operation = producer(value, "tosa.const_shape")
    if operation is None:
        return None
    attribute = ir.DenseIntElementsAttr(operation.attributes["values"])
    return [int(v) for v in attribute]


def attribute_integers(operation: Any, name: str) -> list[int]:
    """An ``array<i32>`` or ``array<i64>`` attribute."""
    return [int(v) for v in operation.attributes[name]]


def permutation(operation: Any) -> list[int]:
    """Dimension ``i`` of a transpose's result is dimension ``permutation[i]`` of its input."""
    return attribute_integers(operation, "perms")


def inverse(order: Sequence[int]) -> list[int]:
    """The permutation that takes ``order`` back."""
    return [list(order).index(d) for d in range(len(order))]


def moves_nothing(shape: Sequence[int], order: Sequence[int]) -> bool:
    """Whether transposing leaves every element where it lies: only dimensions of size one move."""
    long_dims = [d for d in order if shape[d] != 1]
    return long_dims == sorted(long_dims)
