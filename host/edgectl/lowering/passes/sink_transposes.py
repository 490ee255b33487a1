"""Transposes move down the graph until they meet their inverse.

torch-mlir puts a transpose before and one after every channels-last operation. Between two
convolutions they cancel as soon as what stands between them is computed in the other order, so
``f(transpose(x))`` becomes ``transpose(f'(x))`` for every ``f`` that has an ``f'``: elementwise
operations, concatenation, padding, slices, reductions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from edgectl.lowering.integer.mlir_builder import TosaBuilder
from edgectl.lowering.passes.values import (
    inverse,
    moves_nothing,
    operations,
    permutation,
    producer,
    shape_values,
    static_shape,
    tensor_shape,
)

__all__ = ["sink_transposes"]

_UNARY = [
    "abs",
    "bitwise_not",
    "cast",
    "ceil",
    "clamp",
    "clz",
    "cos",
    "erf",
    "exp",
    "floor",
    "identity",
    "log",
    "logical_not",
    "negate",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "sin",
    "tanh",
    "table",
]
_BINARY = [
    "add",
    "arithmetic_right_shift",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "intdiv",
    "logical_and",
    "logical_left_shift",
    "logical_or",
    "logical_right_shift",
    "logical_xor",
    "maximum",
    "minimum",
    "mul",
    "pow",
    "sub",
]
_REDUCTIONS = [
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_min",
    "reduce_product",
    "reduce_sum",
    "reverse",
]

# How many leading operands have the layout of the result; those behind are scalars and tables.
_LAID_OUT = {
    **{f"tosa.{name}": 1 for name in (*_UNARY, *_REDUCTIONS, "pad", "slice", "tile", "rescale")},
    **{f"tosa.{name}": 2 for name in _BINARY},
    "tosa.select": 3,
}


def sink_transposes(function: Any, *, eager: bool) -> None:
    """One sweep in program order over a function's body, in place; dead transposes stay behind.

    Args:
        function: the ``func.func`` operation.
        eager: also where another operand then needs a transpose of its own, in the hope that it
            meets its inverse further down.
    """
    for operation in operations(function):
        if operation.name == "tosa.transpose":
            _compose(operation)
        elif operation.name == "tosa.concat":
            _sink(operation, len(operation.operands), eager=eager)
        elif operation.name in _LAID_OUT:
            _sink(operation, _LAID_OUT[operation.name], eager=eager)


def _compose(operation: Any) -> None:
    """Two transposes in a row become one, or none."""
    inner = producer(operation.operands[0], "tosa.transpose")
    if inner is None:
        return
    first, second = permutation(inner), permutation(operation)
    order = [first[d] for d in second]
    source = inner.operands[0]
    if order == sorted(order) and source.type == operation.results[0].type:
        operation.results[0].replace_all_uses_with(source)
    else:
        new = _transpose(TosaBuilder(operation), source, order, operation.results[0].type)
        operation.results[0].replace_all_uses_with(new)
    operation.erase()


def _transpose(builder: TosaBuilder, value: Any, order: Sequence[int], result: Any) -> Any:
    with result.context:
        perms = ir.DenseI32ArrayAttr.get(list(order))
    return builder.op("tosa.transpose", result, [value], {"perms": perms})


def _permuted_type(kind: Any, order: Sequence[int]) -> Any:
    """The type of a transpose's result."""
    tensor = ir.RankedTensorType(kind)
    sizes = [
        ir.ShapedType.get_dynamic_size() if tensor.is_dynamic_dim(d) else tensor.get_dim_size(d)
        for d in order
    ]
    with kind.context, ir.Location.unknown():
        return ir.RankedTensorType.get(sizes, tensor.element_type)


def _order_of(values: Sequence[Any], dims: int) -> list[int] | None:
    for value in values:
        operation = producer(value, "tosa.transpose")
        if operation is not None and len(permutation(operation)) == dims:
            return permutation(operation)
    return None


def _sink(operation: Any, count: int, *, eager: bool) -> None:
    result = operation.results[0]
    shape = tensor_shape(result)
    laid_out = [operation.operands[i] for i in range(count)]
    order = None if shape is None else _order_of(laid_out, len(shape))
    if order is None or any(len(tensor_shape(v) or ()) != len(order) for v in laid_out):
        return
    if not all(_can_follow(v, order, eager=eager) for v in laid_out):
        return
    attributes = _attributes(operation, order)
    rest = [operation.operands[i] for i in range(count, len(operation.operands))]
    builder = TosaBuilder(operation)
    moved = _shape_operands(operation, rest, order, builder)
    if attributes is None or moved is None:
        return
    operands = [_before(builder, v, order) for v in laid_out]
    back = inverse(order)
    new = builder.op(
        operation.name, _permuted_type(result.type, back), [*operands, *moved], attributes
    )
    result.replace_all_uses_with(_transpose(builder, new, order, result.type))
    operation.erase()


def _can_follow(value: Any, order: list[int], *, eager: bool) -> bool:
    """Whether the value is to be had in the order before the transpose, and at what price."""
    transposed = producer(value, "tosa.transpose")
    if transposed is not None and permutation(transposed) == order:
        return True
    if producer(value, "tosa.const") is not None:
        return True  # folded at compile time
    shape = static_shape(value)
    if shape is not None and moves_nothing(shape, inverse(order)):
        return True
    return eager


def _before(builder: TosaBuilder, value: Any, order: list[int]) -> Any:
    transposed = producer(value, "tosa.transpose")
    if transposed is not None and permutation(transposed) == order:
        return transposed.operands[0]
    back = inverse(order)
    shape = static_shape(value)
    if shape is not None and all(d == 1 for d in shape):
        return value
    if transposed is not None:
        first = permutation(transposed)
        source = transposed.operands[0]
        return _transpose(
            builder, source, [first[d] for d in back], _permuted_type(value.type, back)
        )
    return _transpose(builder, value, back, _permuted_type(value.type, back))


def _attributes(operation: Any, order: list[int]) -> dict[str, Any] | None:
    """The attributes in the order before the transpose; ``None`` when there is no such form."""
    attributes = {named.name: named.attr for named in _named(operation)}
    if operation.name == "tosa.rescale" and "true" in str(attributes.get("per_channel")):
        # Its multipliers belong to the last dimension.
        return attributes if order[-1] == len(order) - 1 else None
    if "axis" in attributes:
        axis = ir.IntegerAttr(attributes["axis"])
        with operation.context, ir.Location.unknown():
            attributes["axis"] = ir.IntegerAttr.get(axis.type, order[int(axis.value)])
    return attributes


def _named(operation: Any) -> list[Any]:
    attributes = operation.attributes
    return [attributes[i] for i in range(len(attributes))]


def _shape_operands(
    operation: Any, rest: list[Any], order: list[int], builder: TosaBuilder
) -> list[Any] | None:
    """The operands behind the tensors, in the order before the transpose."""
    if operation.name not in ("tosa.pad", "tosa.slice", "tosa.tile"):
        return rest
    moved: list[Any] = []
    for value in rest:
        if not str(value.type).startswith("!tosa.shape"):
            moved.append(value)
            continue
        numbers = shape_values(value)
        if numbers is None or len(numbers) % len(order):
            return None
        width = len(numbers) // len(order)  # padding has two numbers a dimension
        new = [0] * len(numbers)
        for place, dim in enumerate(order):
            new[width * dim : width * (dim + 1)] = numbers[width * place : width * (place + 1)]
        moved.append(builder.shape_constant(new))
    return moved
