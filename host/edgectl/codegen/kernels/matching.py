"""Finds convolutions and matrix products with constant weights, with all that belongs to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgectl.codegen.kernels.constants import Constants, element_name
from edgectl.codegen.kernels.epilogue import follow_float, follow_integer, narrowed
from edgectl.codegen.kernels.shapes import Activation, Convolution, Geometry, Requantization

__all__ = ["Site", "find_sites"]

_SUMS = ("tosa.conv2d", "tosa.depthwise_conv2d", "tosa.matmul")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A convolution in the module: what it reads, and the operations that a kernel replaces.

    ``operations`` are in program order; the last one's result is what the kernel writes.
    ``reason`` says why ``convolution`` is missing.
    """

    name: str
    input: Any
    operations: tuple[Any, ...]
    convolution: Convolution | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """A convolution before its epilogue is known."""

    operation: Any
    source: Any
    before: tuple[Any, ...]
    geometry: Geometry
    weights: NDArray[np.generic]
    bias: NDArray[np.generic]
    pad_value: int


def find_sites(module: Any) -> Iterator[Site]:
    """Every convolution-shaped operation of every function, in program order."""
    constants = Constants(module)
    for function in module.body.operations:
        if function.operation.name != "func.func":
            continue
        for block in function.operation.regions[0].blocks:
            # Listed first: the caller erases operations between one site and the next.
            found = [view.operation for view in block.operations if view.operation.name in _SUMS]
            for operation in found:
                yield _site(operation, constants)


def _shape(value: Any) -> list[int] | None:
    from iree.compiler import ir

    kind = ir.ShapedType(value.type)
    if not kind.has_rank or not kind.has_static_shape:
        return None
    return list(kind.shape)


def _describe(operation: Any) -> str:
    shape = _shape(operation.results[0])
    size = "dynamic" if shape is None else "x".join(map(str, shape))
    return f"{operation.name.removeprefix('tosa.')}_{size}_{element_name(operation.operands[0])}"


def _site(operation: Any, constants: Constants) -> Site:
    name = _describe(operation)
    found = _read_sum(operation, constants)
    if isinstance(found, str):
        return Site(name=name, input=None, operations=(), convolution=None, reason=found)
    channels = found.geometry.out_c
    element = element_name(operation.operands[0])
    result = operation.results[0]
    narrowing: tuple[Any, ...] = ()
    if element_name(result) == "f32" and element == "f16":
        narrowing = narrowed(result)
        if not narrowing:
            reason = "its sums leave as f32 although its factors are f16"
            return Site(name=name, input=None, operations=(), convolution=None, reason=reason)
        result = narrowing[-1].results[0]
    epilogue: Requantization | Activation
    bias: NDArray[Any] = found.bias
    if element == "i8":
        integer = follow_integer(result, channels, constants)
        if integer is None:
            return Site(
                name=name,
                input=None,
                operations=(),
                convolution=None,
                reason="what follows the sums is not a requantization to int8",
            )
        epilogue, after = integer.epilogue, integer.operations
    else:
        tail = follow_float(result, channels, constants)
        epilogue, after = tail.epilogue, (*narrowing, *tail.operations)
        bias = (bias + tail.bias).astype(bias.dtype)
    return Site(
        name=name,
        input=found.source,
        operations=(*found.before, operation, *after),
        convolution=Convolution(
            element=element,
            geometry=found.geometry,
            weights=found.weights,
            bias=bias,
            epilogue=epilogue,
            pad_value=found.pad_value,
        ),
    )


def _integers(operation: Any, name: str) -> list[int]:
    return [int(v) for v in operation.attributes[name]]


def _zero_point(operation: Any, index: int, constants: Constants) -> int | None:
    if len(operation.operands) <= index:
        return 0
    value = constants.read(operation.operands[index])
    return None if value is None or value.size != 1 else int(value.reshape(()))


def _read_sum(operation: Any, constants: Constants) -> _Sum | str:
    element = element_name(operation.operands[0])
    if element not in ("i8", "f32", "f16") or element_name(operation.operands[1]) != element:
        return f"{element} is not an element type that kernels compute"
    if _shape(operation.operands[0]) is None or _shape(operation.results[0]) is None:
        return "its shape is not known at compile time"
    if operation.name == "tosa.matmul":
        return _read_matmul(operation, constants, element)
    return _read_convolution(operation, constants, element)


def _accumulator(element: str) -> Any:
    return {"i8": np.int32, "f16": np.float16, "f32": np.float32}[element]


def _read_convolution(operation: Any, constants: Constants, element: str) -> _Sum | str:
    weights, bias = constants.read(operation.operands[1]), constants.read(operation.operands[2])
    if weights is None or bias is None:
        return "its weights or bias are not constant"
    in_zp, weight_zp = _zero_point(operation, 3, constants), _zero_point(operation, 4, constants)
    if in_zp is None or weight_zp is None or weight_zp != 0:
        return "its zero points are not constant, or the weights' is not zero"
    if element_name(operation.results[0]) not in ({"i8": ("i32",)}.get(element, (element,))):
        return f"it sums {element} in {element_name(operation.results[0])}"
    shape_in, shape_out = _shape(operation.operands[0]), _shape(operation.results[0])
    if shape_in is None or shape_out is None:
        return "its shape is not known at compile time"
    top, bottom, left, right = _integers(operation, "pad")
    stride, dilation = _integers(operation, "stride"), _integers(operation, "dilation")
    depthwise = operation.name == "tosa.depthwise_conv2d"
    if depthwise:
        if weights.shape[3] != 1:
            return "a channel multiplier above one"
        weights = weights[:, :, :, 0]
        k_h, k_w = weights.shape[0], weights.shape[1]
    else:
        k_h, k_w = weights.shape[1], weights.shape[2]
    source, pad_value = operation.operands[0], in_zp
    before: tuple[Any, ...] = ()
    padded = _read_pad(source, constants)
    if padded is not None and (padded.value == in_zp or (top, bottom, left, right) == (0, 0, 0, 0)):
        source, before, pad_value = padded.source, (padded.operation,), padded.value
        top, left = top + padded.top, left + padded.left
        shape_in = _shape(source) or shape_in
    channels = shape_out[3]
    bias = np.broadcast_to(bias.reshape(-1), (channels,)).astype(_accumulator(element))
    if in_zp != 0:
        axes = (0, 1) if depthwise else (1, 2, 3)
        bias = (bias - in_zp * weights.astype(np.int32).sum(axis=axes)).astype(np.int32)
    geometry = Geometry(
        batch=shape_in[0],
        in_h=shape_in[1],
        in_w=shape_in[2],
        in_c=shape_in[3],
        out_h=shape_out[1],
        out_w=shape_out[2],
        out_c=channels,
        k_h=k_h,
        k_w=k_w,
        stride_h=stride[0],
        stride_w=stride[1],
        dilation_h=dilation[0],
        dilation_w=dilation[1],
        pad_top=top,
        pad_left=left,
        depthwise=depthwise,
    )
    return _Sum(
        operation=operation,
        source=source,
        before=before,
        geometry=geometry,
        weights=weights,
        bias=bias,
        pad_value=pad_value,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pad:
    operation: Any
    source: Any
    top: int
    left: int
    value: int


def _read_pad(value: Any, constants: Constants) -> _Pad | None:
    """A ``tosa.pad`` of height and width whose result only this convolution reads."""
    from iree.compiler import ir

    owner = value.owner
    if not isinstance(owner, ir.OpView | ir.Operation) or owner.operation.name != "tosa.pad":
        return None
    operation = owner.operation
    if len(list(value.uses)) != 1:
        return None
    shape_op = operation.operands[1].owner
    if (
        not isinstance(shape_op, ir.OpView | ir.Operation)
        or shape_op.operation.name != "tosa.const_shape"
    ):
        return None
    amounts = [
        int(v)
        for v in np.array(ir.DenseIntElementsAttr(shape_op.operation.attributes["values"])).reshape(
            -1
        )
    ]
    if len(amounts) != 8 or amounts[:2] != [0, 0] or amounts[6:] != [0, 0]:
        return None
    fill = constants.read(operation.operands[2]) if len(operation.operands) > 2 else np.zeros(1)
    if fill is None or fill.size != 1 or float(fill.reshape(())) != int(fill.reshape(())):
        return None
    return _Pad(
        operation=operation,
        source=operation.operands[0],
        top=amounts[2],
        left=amounts[4],
        value=int(fill.reshape(())),
    )


def _read_matmul(operation: Any, constants: Constants, element: str) -> _Sum | str:
    left, right = _shape(operation.operands[0]), _shape(operation.operands[1])
    weights = constants.read(operation.operands[1])
    if weights is None or left is None or right is None:
        return "both factors are computed at run time"
    if left[0] != 1:
        return "a batch of matrix products"
    zero_points = [_zero_point(operation, i, constants) for i in (2, 3)]
    if zero_points[0] is None or zero_points[1] != 0:
        return "its zero points are not constant, or the weights' is not zero"
    sums = {"i8": ("i32",), "f16": ("f16", "f32")}.get(element, (element,))
    if element_name(operation.results[0]) not in sums:
        return f"it sums {element} in {element_name(operation.results[0])}"
    matrix = np.ascontiguousarray(weights[0].T)
    bias = np.zeros(matrix.shape[0], _accumulator(element))
    if zero_points[0] != 0:
        bias = (bias - zero_points[0] * matrix.astype(np.int32).sum(axis=1)).astype(np.int32)
    geometry = Geometry(
        batch=1, in_h=1, in_w=left[1], in_c=left[2], out_h=1, out_w=left[1], out_c=matrix.shape[0]
    )
    return _Sum(
        operation=operation,
        source=operation.operands[0],
        before=(),
        geometry=geometry,
        weights=matrix.reshape(matrix.shape[0], 1, 1, -1),
        bias=bias,
        pad_value=0,
    )
