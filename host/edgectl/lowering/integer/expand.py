"""``torch.operator "torch.edgectl.*"`` becomes TOSA, right after the import.

Each operator stands between casts from and to torch's tensor types, which torch-mlir's own
pipelines carry along and resolve. Rounding is written as ``tosa.cast`` from float32 to int32
behind a clamp (TOSA rounds half to even), so the module is plain TOSA; `fast_rounding` replaces
those casts before the module goes to IREE.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_mlir import ir

from edgectl.lowering.integer.mlir_builder import TosaBuilder

__all__ = ["expand_operators"]

_PREFIX = "torch.edgectl."


class _Call:
    """One operator: its tensors as builtin values, its constants as Python values."""

    def __init__(self, operation: Any) -> None:
        self.operation = operation
        self.build = TosaBuilder(operation)
        self.result_type = self._builtin(operation.results[0].type)

    def _builtin(self, kind: Any) -> Any:
        text = str(kind)
        inner = text[text.index("[") + 1 : text.index("]")]
        element = text[text.index("]") + 2 : -1]
        shape = [int(d) for d in inner.split(",") if d]
        return self.build.tensor_type(shape, self.build.element(element.replace("si", "i")))

    def tensor(self, index: int) -> Any:
        value = self.operation.operands[index]
        return self.build.op("torch_c.to_builtin_tensor", self._builtin(value.type), [value])

    def tensor_shape(self, index: int) -> list[int]:
        return list(ir.RankedTensorType(self._builtin(self.operation.operands[index].type)).shape)

    def number(self, index: int) -> Any:
        return _literal(self.operation.operands[index])

    @property
    def rank(self) -> int:
        return len(ir.RankedTensorType(self.result_type).shape)

    def finish(self, value: Any) -> None:
        old = self.operation.results[0]
        new = self.build.op("torch_c.from_builtin_tensor", old.type, [value])
        old.replace_all_uses_with(new)
        self.operation.erase()


def _literal(value: Any) -> Any:
    owner = value.owner
    if owner.name == "torch.prim.ListConstruct":
        return [_literal(v) for v in owner.operands]
    attribute = owner.attributes["value"]
    if owner.name == "torch.constant.float":
        return float(ir.FloatAttr(attribute).value)
    return int(ir.IntegerAttr(attribute).value)


def expand_operators(module: Any) -> int:
    """Expands every ``edgectl`` operator of a freshly imported module, in place.

    Returns how many there were. The context must know the ``torch_c`` and ``tosa`` dialects
    (any pipeline of torch-mlir that was run once loads them).
    """
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name == "torch.operator":
            name = ir.StringAttr(operation.attributes["name"]).value
            if name.startswith(_PREFIX):
                found.append((name.removeprefix(_PREFIX).removesuffix(".default"), operation))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for name, operation in found:
        _EXPANSIONS[name](_Call(operation))
    return len(found)


def _round_and_store(call: _Call, value: Any, zero_point: int, minimum: int, maximum: int) -> None:
    """float32 -> int8: clamp, round, shift by the zero point."""
    build = call.build
    value = build.clamp(value, minimum - zero_point, maximum - zero_point, "f32")
    rounded = build.cast(value, "i32")
    if zero_point:
        rounded = build.binary("tosa.add", rounded, build.scalar(zero_point, "i32", call.rank))
    call.finish(build.cast(rounded, "i8"))


def _by_last_axis(call: _Call, constant: Any, rank: int) -> Any:
    """A vector of factors as [1, ..., 1, C]."""
    count = call.build.shape_of(constant)[0]
    return call.build.reshape(constant, [1] * (rank - 1) + [count])


def _quantize(call: _Call) -> None:
    build = call.build
    inverse = build.scalar(1.0 / call.number(1), "f32", call.rank)
    _round_and_store(
        call, build.multiply(call.tensor(0), inverse), *(call.number(i) for i in (2, 3, 4))
    )


def _centred(call: _Call, value: Any, zero_point: int) -> Any:
    """int8 minus its zero point, as float32 (exact)."""
    build = call.build
    rank = len(build.shape_of(value))
    real = build.cast(value, "f32")
    if zero_point:
        real = build.binary("tosa.sub", real, build.scalar(zero_point, "f32", rank))
    return real


def _dequantize(call: _Call) -> None:
    build = call.build
    real = _centred(call, call.tensor(0), call.number(2))
    call.finish(build.multiply(real, build.scalar(call.number(1), "f32", call.rank)))


def _zeros(call: _Call, count: int) -> list[Any]:
    return [call.build.scalar(0, "i8") for _ in range(count)]


def _conv2d(call: _Call, name: str = "tosa.conv2d") -> None:
    build = call.build
    attributes = {
        "pad": build.integers([0, 0, 0, 0]),
        "stride": build.integers(call.number(3)),
        "dilation": build.integers(call.number(4)),
        "acc_type": build.attribute("i32"),
    }
    # TOSA wants windows that use up the input exactly: rows that no window reads are cut off.
    image = _exact_input(call, call.tensor(0), call.tensor_shape(1), name)
    operands = [image, call.tensor(1), call.tensor(2), *_zeros(call, 2)]
    call.finish(build.op(name, call.result_type, operands, attributes))


def _exact_input(call: _Call, image: Any, weight: list[int], name: str) -> Any:
    kernel = weight[:2] if name == "tosa.depthwise_conv2d" else weight[1:3]
    stride, dilation = call.number(3), call.number(4)
    out = list(ir.RankedTensorType(call.result_type).shape)[1:3]
    needed = [
        (o - 1) * s + d * (k - 1) + 1
        for o, s, d, k in zip(out, stride, dilation, kernel, strict=True)
    ]
    return _cut(call, image, needed)


def _cut(call: _Call, image: Any, needed: list[int]) -> Any:
    build = call.build
    shape = build.shape_of(image)
    if shape[1:3] == needed:
        return image
    size = [shape[0], *needed, shape[3]]
    element = ir.RankedTensorType(image.type).element_type
    return build.op(
        "tosa.slice",
        build.tensor_type(size, element),
        [image, build.shape_constant([0, 0, 0, 0]), build.shape_constant(size)],
    )


def _transpose_conv2d(call: _Call) -> None:
    build = call.build
    attributes = {
        "out_pad": build.integers(call.number(3)),
        "stride": build.integers(call.number(4)),
        "acc_type": build.attribute("i32"),
    }
    zero_points = [build.scalar(call.number(5), "i8"), build.scalar(0, "i8")]
    operands = [call.tensor(0), call.tensor(1), call.tensor(2), *zero_points]
    call.finish(build.op("tosa.transpose_conv2d", call.result_type, operands, attributes))


def _fully_connected(call: _Call) -> None:
    build = call.build
    x, weight, bias = (call.tensor(i) for i in range(3))
    rows, depth = build.shape_of(x)
    width = build.shape_of(weight)[1]
    product = build.op(
        "tosa.matmul",
        build.tensor_type([1, rows, width], build.element("i32")),
        [
            build.reshape(x, [1, rows, depth]),
            build.reshape(weight, [1, depth, width]),
            *_zeros(call, 2),
        ],
    )
    total = build.binary("tosa.add", product, build.reshape(bias, [1, 1, width]))
    call.finish(build.reshape(total, [rows, width]))


def _matmul(call: _Call) -> None:
    build = call.build
    zero_points = [build.scalar(call.number(i), "i8") for i in (2, 3)]
    operands = [call.tensor(0), call.tensor(1), *zero_points]
    call.finish(build.op("tosa.matmul", call.result_type, operands))


def _sum(call: _Call) -> None:
    build = call.build
    value = build.cast(call.tensor(0), "i32")
    shape = build.shape_of(value)
    for dim in call.number(1):
        shape[dim] = 1
        value = build.op(
            "tosa.reduce_sum",
            build.tensor_type(shape, build.element("i32")),
            [value],
            {"axis": build.attribute(f"{dim} : i32")},
        )
    call.finish(value)


def _offset(call: _Call, value: Any, offset: int) -> Any:
    if not offset:
        return value
    rank = len(call.build.shape_of(value))
    return call.build.binary("tosa.add", value, call.build.scalar(offset, "i32", rank))


def _requantize(call: _Call) -> None:
    build = call.build
    value = build.cast(_offset(call, call.tensor(0), call.number(2)), "f32")
    scaled = build.multiply(value, _by_last_axis(call, call.tensor(1), call.rank))
    _round_and_store(call, scaled, *(call.number(i) for i in (3, 4, 5)))


def _accumulator_to_float(call: _Call) -> None:
    build = call.build
    value = build.cast(_offset(call, call.tensor(0), call.number(2)), "f32")
    call.finish(build.multiply(value, _by_last_axis(call, call.tensor(1), call.rank)))


def _rescale_op(
    call: _Call, value: Any, result: Any, scaling: list[Any], zeros: list[Any], *, per_channel: bool
) -> Any:
    build = call.build
    return build.op(
        "tosa.rescale",
        result,
        [value, *scaling, *zeros],
        {
            "scale32": build.attribute("true"),
            "rounding_mode": build.attribute("#tosa.rounding_mode<SINGLE_ROUND>"),
            "per_channel": build.attribute("true" if per_channel else "false"),
            "input_unsigned": build.attribute("false"),
            "output_unsigned": build.attribute("false"),
        },
    )


def _rescale(call: _Call) -> None:
    build = call.build
    value = _offset(call, call.tensor(0), call.number(3))
    zero_point, minimum, maximum = (call.number(i) for i in (4, 5, 6))
    scaling = [call.tensor(1), call.tensor(2)]
    count = build.shape_of(scaling[0])[0]
    zeros = [build.scalar(0, "i32"), build.scalar(zero_point, "i8")]
    result = _rescale_op(call, value, call.result_type, scaling, zeros, per_channel=count > 1)
    if (minimum, maximum) != (-128, 127):
        result = build.clamp(result, minimum, maximum, "i8")
    call.finish(result)


def _widen(call: _Call) -> None:
    build = call.build
    zero_point, multiplier, shift = (call.number(i) for i in (1, 2, 3))
    scaling = [build.scalar(multiplier, "i32"), build.scalar(shift, "i8")]
    zeros = [build.scalar(zero_point, "i8"), build.scalar(0, "i32")]
    call.finish(
        _rescale_op(call, call.tensor(0), call.result_type, scaling, zeros, per_channel=False)
    )


def _same_rank(call: _Call, value: Any) -> Any:
    shape = call.build.shape_of(value)
    return call.build.reshape(value, [1] * (call.rank - len(shape)) + shape)


def _add(call: _Call) -> None:
    build = call.build
    parts = []
    for index in (0, 1):
        value = _same_rank(call, call.tensor(index))
        scale, zero_point = call.number(2 + 2 * index), call.number(3 + 2 * index)
        real = _centred(call, value, zero_point)
        parts.append(build.multiply(real, build.scalar(scale, "f32", call.rank)))
    total = build.binary("tosa.add", *parts)
    _round_and_store(call, total, *(call.number(i) for i in (6, 7, 8)))


def _multiply(call: _Call) -> None:
    build = call.build
    parts = [_centred(call, _same_rank(call, call.tensor(i)), call.number(3 + i)) for i in (0, 1)]
    product = build.multiply(*parts)
    scaled = build.multiply(product, build.scalar(call.number(2), "f32", call.rank))
    _round_and_store(call, scaled, *(call.number(i) for i in (5, 6, 7)))


def _table(call: _Call) -> None:
    operands = [call.tensor(0), call.tensor(1)]
    call.finish(call.build.op("tosa.table", call.result_type, operands))


def _pad(call: _Call) -> None:
    build = call.build
    operands = [
        call.tensor(0),
        build.shape_constant(call.number(1)),
        build.scalar(call.number(2), "i8"),
    ]
    call.finish(build.op("tosa.pad", call.result_type, operands))


def _max_pool2d(call: _Call) -> None:
    build = call.build
    attributes = {
        "kernel": build.integers(call.number(1)),
        "stride": build.integers(call.number(2)),
        "pad": build.integers(call.number(3)),
    }
    call.finish(build.op("tosa.max_pool2d", call.result_type, [call.tensor(0)], attributes))


_EXPANSIONS: dict[str, Callable[[_Call], None]] = {
    "quantize": _quantize,
    "dequantize": _dequantize,
    "conv2d": _conv2d,
    "depthwise_conv2d": lambda call: _conv2d(call, "tosa.depthwise_conv2d"),
    "transpose_conv2d": _transpose_conv2d,
    "fully_connected": _fully_connected,
    "matmul": _matmul,
    "sum": _sum,
    "requantize": _requantize,
    "rescale": _rescale,
    "accumulator_to_float": _accumulator_to_float,
    "add": _add,
    "multiply": _multiply,
    "widen": _widen,
    "table": _table,
    "pad": _pad,
    "max_pool2d": _max_pool2d,
}
