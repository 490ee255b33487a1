"""ONNX operators as PyTorch: element by element, shapes, reductions.

Each function gets an `Operation` (attributes and opset) and its inputs; an input that is left out
is ``None``. Semantics are those of ONNX's operator specification for opsets 9 to 23.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from edgectl.errors import UnsupportedModelError

__all__ = ["OPERATORS", "Operation", "Static", "ints", "numbers", "operator", "optional", "tensor"]

Tensor = torch.Tensor


@dataclass(frozen=True)
class Static:
    """A value that does not depend on the data of any input: a weight, a shape, a constant."""

    value: Tensor
    items: tuple[Any, ...] | None


@dataclass(frozen=True)
class Operation:
    """One node, as its operator's function sees it."""

    name: str
    kind: str
    attributes: dict[str, Any]
    opset: int
    outputs: int

    def get(self, name: str, default: Any = None) -> Any:
        """The attribute of that name."""
        return self.attributes.get(name, default)


Function = Callable[..., Any]
OPERATORS: dict[str, Function] = {}


def operator(*names: str) -> Callable[[Function], Function]:
    """Registers a function for these operators."""

    def register(function: Function) -> Function:
        for name in names:
            OPERATORS[name] = function
        return function

    return register


def tensor(value: Any) -> Tensor:
    """The tensor of a value, static or not."""
    found: Tensor = value.value if isinstance(value, Static) else value
    return found


def optional(value: Any) -> Tensor | None:
    """The tensor of an input that may be left out."""
    return None if value is None else tensor(value)


def ints(op: Operation, value: Any) -> list[int]:
    """The numbers of a static value.

    Raises:
        UnsupportedModelError: they depend on the data of an input.
    """
    if isinstance(value, Static) and value.items is not None:
        return [int(item) for item in value.items]
    if isinstance(value, (list, tuple)):
        return [int(item) for item in value]
    raise UnsupportedModelError(
        f"ONNX node {op.name!r} ({op.kind}) takes a shape or an index from the data of an input.",
        next_step="Export the model with fixed shapes (torch.onnx without dynamic axes).",
    )


def numbers(op: Operation, value: Any) -> list[float]:
    """The numbers of a static value, as floats.

    Raises:
        UnsupportedModelError: they depend on the data of an input.
    """
    if isinstance(value, Static) and value.items is not None:
        return [float(item) for item in value.items]
    if isinstance(value, (list, tuple)):
        return [float(item) for item in value]
    raise UnsupportedModelError(
        f"ONNX node {op.name!r} ({op.kind}) takes a number from the data of an input.",
        next_step="Export the model with constants there.",
    )


def axes_of(op: Operation, value: Any) -> list[int] | None:
    """``axes``, an attribute in old opsets and an input in new ones."""
    given = op.get("axes") if value is None else ints(op, value)
    return None if given is None else [int(axis) for axis in given]


_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Asin": torch.asin,
    "Atan": torch.atan,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "Identity": lambda x: x,
    "IsInf": torch.isinf,
    "IsNaN": torch.isnan,
    "Log": torch.log,
    "Mish": F.mish,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
}
_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": torch.add,
    "And": torch.logical_and,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Mul": torch.mul,
    "Or": torch.logical_or,
    "Pow": torch.pow,
    "PRelu": lambda x, slope: torch.where(x < 0, x * slope, x),
    "Sub": torch.sub,
    "Xor": torch.logical_xor,
}
_DTYPES = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}


@operator(*_UNARY)
def unary(op: Operation, x: Any) -> Any:
    return _UNARY[op.kind](tensor(x))


@operator(*_BINARY)
def binary(op: Operation, a: Any, b: Any) -> Any:
    result = _BINARY[op.kind](tensor(a), tensor(b))
    # ONNX keeps the dtype of the base, torch promotes.
    return result.to(tensor(a).dtype) if op.kind == "Pow" else result


@operator("Div")
def divide(_op: Operation, a: Any, b: Any) -> Any:
    a, b = tensor(a), tensor(b)
    if a.is_floating_point():
        return torch.div(a, b)
    return torch.div(a, b, rounding_mode="trunc")


@operator("Mod")
def modulo(op: Operation, a: Any, b: Any) -> Any:
    a, b = tensor(a), tensor(b)
    return torch.fmod(a, b) if op.get("fmod", 0) else torch.remainder(a, b)


@operator("Min", "Max", "Sum", "Mean")
def variadic(op: Operation, *values: Any) -> Any:
    tensors = [tensor(value) for value in values]
    result: Tensor = tensors[0]
    for other in tensors[1:]:
        if op.kind in ("Min", "Max"):
            result = (torch.minimum if op.kind == "Min" else torch.maximum)(result, other)
        else:
            result = result + other
    return result / len(tensors) if op.kind == "Mean" else result


@operator("Clip")
def clip(op: Operation, x: Any, low: Any = None, high: Any = None) -> Any:
    x = tensor(x)
    bounds = [_bound(op, "min", low), _bound(op, "max", high)]
    if bounds == [None, None]:
        return x
    if not x.is_floating_point():
        bounds = [None if bound is None else int(bound) for bound in bounds]
    return torch.clamp(x, bounds[0], bounds[1])


def _bound(op: Operation, name: str, value: Any) -> float | None:
    """A limit of Clip, an attribute in old opsets and an input in new ones."""
    if value is None:
        given: float | None = op.get(name)
        return given
    return numbers(op, value)[0]


@operator("LeakyRelu")
def leaky_relu(op: Operation, x: Any) -> Any:
    return F.leaky_relu(tensor(x), op.get("alpha", 0.01))


@operator("Elu")
def elu(op: Operation, x: Any) -> Any:
    return F.elu(tensor(x), op.get("alpha", 1.0))


@operator("Selu")
def selu(op: Operation, x: Any) -> Any:
    x, alpha, gamma = tensor(x), op.get("alpha", 1.67326319), op.get("gamma", 1.05070102)
    return gamma * torch.where(x > 0, x, alpha * (torch.exp(x) - 1))


@operator("Gelu")
def gelu(op: Operation, x: Any) -> Any:
    return F.gelu(tensor(x), approximate=op.get("approximate", "none"))


@operator("HardSigmoid")
def hard_sigmoid(op: Operation, x: Any) -> Any:
    return torch.clamp(op.get("alpha", 0.2) * tensor(x) + op.get("beta", 0.5), 0, 1)


@operator("HardSwish")
def hard_swish(_op: Operation, x: Any) -> Any:
    return F.hardswish(tensor(x))


@operator("Softmax", "LogSoftmax")
def softmax(op: Operation, x: Any) -> Any:
    x = tensor(x)
    function: Callable[..., Tensor] = F.softmax if op.kind == "Softmax" else F.log_softmax
    if op.opset >= 13:
        return function(x, dim=op.get("axis", -1))
    # Before opset 13, everything from the axis on was one row.
    axis = op.get("axis", 1) % x.dim()
    return function(x.flatten(axis), dim=-1).reshape(x.shape)


@operator("Where")
def where(_op: Operation, condition: Any, a: Any, b: Any) -> Any:
    return torch.where(tensor(condition), tensor(a), tensor(b))


@operator("Cast")
def cast(op: Operation, x: Any) -> Any:
    if op.get("to") not in _DTYPES:
        raise UnsupportedModelError(f"ONNX node {op.name!r} casts to a dtype that no Pi computes.")
    return tensor(x).to(_DTYPES[op.get("to")])


@operator("CastLike")
def cast_like(_op: Operation, x: Any, like: Any) -> Any:
    return tensor(x).to(tensor(like).dtype)


@operator("Dropout")
def dropout(op: Operation, x: Any, *_rest: Any) -> Any:
    x = tensor(x)
    return x if op.outputs == 1 else (x, torch.ones_like(x, dtype=torch.bool))


_REDUCTIONS: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "ReduceMean": lambda x, d, k: x.mean(d, k),
    "ReduceSum": lambda x, d, k: x.sum(d, k),
    "ReduceMax": lambda x, d, k: x.amax(d, k),
    "ReduceMin": lambda x, d, k: x.amin(d, k),
    "ReduceL1": lambda x, d, k: x.abs().sum(d, k),
    "ReduceL2": lambda x, d, k: x.square().sum(d, k).sqrt(),
    "ReduceSumSquare": lambda x, d, k: x.square().sum(d, k),
    "ReduceLogSumExp": lambda x, d, k: torch.logsumexp(x, d, k),
    "ReduceLogSum": lambda x, d, k: x.sum(d, k).log(),
}


@operator(*_REDUCTIONS)
def reduce(op: Operation, x: Any, axes: Any = None) -> Any:
    x = tensor(x)
    dims = axes_of(op, axes)
    if not dims:
        if op.get("noop_with_empty_axes", 0):
            return torch.as_tensor(x)
        dims = list(range(x.dim()))
    return _REDUCTIONS[op.kind](x, dims, bool(op.get("keepdims", 1)))


@operator("ReduceProd")
def reduce_product(op: Operation, x: Any, axes: Any = None) -> Any:
    x = tensor(x)
    keep = bool(op.get("keepdims", 1))
    for axis in sorted((a % x.dim() for a in axes_of(op, axes) or range(x.dim())), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return torch.as_tensor(x)


@operator("ArgMax", "ArgMin")
def arg_extreme(op: Operation, x: Any) -> Any:
    if op.get("select_last_index", 0):
        raise UnsupportedModelError(f"ONNX node {op.name!r} asks for the last of equal indices.")
    function = torch.argmax if op.kind == "ArgMax" else torch.argmin
    return function(tensor(x), dim=op.get("axis", 0), keepdim=bool(op.get("keepdims", 1)))


@operator("TopK")
def top_k(op: Operation, x: Any, k: Any) -> Any:
    values, indices = torch.topk(
        tensor(x), ints(op, k)[0], op.get("axis", -1), bool(op.get("largest", 1)), sorted=True
    )
    return values, indices


@operator("CumSum")
def cumulative_sum(op: Operation, x: Any, axis: Any) -> Any:
    if op.get("exclusive", 0) or op.get("reverse", 0):
        raise UnsupportedModelError(f"ONNX node {op.name!r} sums backwards or exclusively.")
    return torch.cumsum(tensor(x), ints(op, axis)[0])


@operator("Einsum")
def einsum(op: Operation, *values: Any) -> Any:
    return torch.einsum(op.get("equation"), *[tensor(value) for value in values])


@operator("QuantizeLinear")
def quantize(op: Operation, x: Any, scale: Any, zero: Any = None) -> Any:
    x, scale, zero = tensor(x), tensor(scale), optional(zero)
    dtype = torch.uint8 if zero is None else zero.dtype
    zero = torch.zeros((), dtype=torch.int32) if zero is None else zero
    limits = torch.iinfo(dtype)
    scale, zero = _along(op, x, scale), _along(op, x, zero)
    return torch.clamp(torch.round(x / scale) + zero, limits.min, limits.max).to(dtype)


@operator("DequantizeLinear")
def dequantize(op: Operation, x: Any, scale: Any, zero: Any = None) -> Any:
    x, scale, zero = tensor(x), tensor(scale), optional(zero)
    wide = x.to(torch.int32)
    if zero is not None:
        wide = wide - _along(op, x, zero).to(torch.int32)
    return wide.to(scale.dtype) * _along(op, x, scale)


def _along(op: Operation, x: Tensor, value: Tensor) -> Tensor:
    if value.dim() == 0 or value.numel() == 1:
        return value.reshape(())
    shape = [1] * x.dim()
    shape[op.get("axis", 1)] = -1
    return value.reshape(shape)


@operator("Trilu")
def triangle(op: Operation, x: Any, k: Any = None) -> Any:
    diagonal = ints(op, k)[0] if k is not None else 0
    return (torch.triu if op.get("upper", 1) else torch.tril)(tensor(x), diagonal)


@operator("ConstantOfShape")
def constant_of_shape(op: Operation, shape: Any) -> Any:
    value = op.get("value")
    fill = torch.from_numpy(value) if value is not None else torch.zeros(1)
    return fill.reshape(()).expand(ints(op, shape)).clone()


@operator("Range")
def make_range(op: Operation, start: Any, limit: Any, delta: Any) -> Any:
    first, last, step = (numbers(op, value)[0] for value in (start, limit, delta))
    count = max(0, math.ceil((last - first) / step))
    return (torch.arange(count) * step + first).to(tensor(start).dtype)
