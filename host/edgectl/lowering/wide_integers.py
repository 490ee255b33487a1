"""64-bit integers keep all their bits on the way through TOSA.

torch-mlir adds and subtracts int64 in int32, and IREE's TOSA has no cast between int64 and a
float; going through int32 would lose what lies beyond 2^31 (a timestamp in milliseconds does).
Sums are widened again, and casts are split into parts that int32 and float32 can hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["cast_in_parts", "widen_sums"]

_HALF, _QUARTER = 1 << 32, 1 << 16
_EXACT = 1 << 24  # float32 holds every integer up to here


def widen_sums(module: Any) -> int:
    """``cast(add(cast i64->i32, ...)) i32->i64`` becomes an addition in int64; how many."""
    from torch_mlir import ir

    from edgectl.lowering.integer.mlir_builder import TosaBuilder

    with module.context, ir.Location.unknown():
        i64 = ir.IntegerType.get_signless(64)
        count = 0
        for operation in list(_walk(module.operation)):
            if operation.name not in ("tosa.add", "tosa.sub"):
                continue
            result = operation.results[0]
            users = [use.owner for use in result.uses]
            if not users or any(not _is_cast(ir, user, 32, 64) for user in users):
                continue
            build = TosaBuilder(operation)
            operands = [_wide(ir, build, value) for value in operation.operands]
            if any(value is None for value in operands):
                continue
            kind = ir.RankedTensorType.get(ir.RankedTensorType(result.type).shape, i64)
            wide = build.op(operation.name, kind, operands)
            for user in users:
                user.results[0].replace_all_uses_with(wide)
            count += 1
        return count


def cast_in_parts(operation: Any) -> bool:
    """Replaces one ``tosa.cast`` between int64 and a float; False if it is another cast."""
    from torch_mlir import ir

    from edgectl.lowering.integer.mlir_builder import TosaBuilder

    source, result = operation.operands[0], operation.results[0]
    if not isinstance(source.type, ir.RankedTensorType):
        return False
    before, after = str(source.type.element_type), str(result.type.element_type)
    build = TosaBuilder(operation)
    if before == "i64" and after in ("f32", "f16", "bf16"):
        new = _to_float(build, source, after, small=_fits(ir, source))
    elif after == "i64" and before in ("f32", "f16", "bf16"):
        new = _to_integer(build, source, before)
    else:
        return False
    result.replace_all_uses_with(new)
    return True


def _to_float(build: Any, value: Any, kind: str, *, small: bool) -> Any:
    if small:
        return build.cast(build.cast(value, "i32"), kind)
    high = _divided(build, value, _HALF)
    rest = build.binary("tosa.sub", value, _times(build, high, _HALF))
    middle = _divided(build, rest, _QUARTER)
    low = build.binary("tosa.sub", rest, _times(build, middle, _QUARTER))
    total = None
    for part, factor in ((high, _HALF), (middle, _QUARTER), (low, 1)):
        real = build.cast(build.cast(part, "i32"), "f32")
        scaled = build.multiply(real, _float(build, real, factor)) if factor != 1 else real
        total = scaled if total is None else build.binary("tosa.add", total, scaled)
    return total if kind == "f32" else build.cast(total, kind)


def _to_integer(build: Any, value: Any, kind: str) -> Any:
    """``value`` is whole already; beyond 2^55 the result is undefined, as in PyTorch."""
    if kind != "f32":
        return build.cast(build.cast(build.cast(value, "f32"), "i32"), "i64")
    scaled = build.multiply(value, _float(build, value, 1 / _EXACT))
    high = build.op("tosa.floor", value.type, [scaled])
    low = build.binary("tosa.sub", value, build.multiply(high, _float(build, value, _EXACT)))
    wide = [build.cast(build.cast(part, "i32"), "i64") for part in (high, low)]
    return build.binary("tosa.add", _times(build, wide[0], _EXACT), wide[1])


def _divided(build: Any, value: Any, by: int) -> Any:
    return build.binary("tosa.intdiv", value, _integer(build, value, by))


def _times(build: Any, value: Any, by: int) -> Any:
    return build.multiply(value, _integer(build, value, by))


def _integer(build: Any, like: Any, value: int) -> Any:
    return _constant(build, np.full([1] * len(build.shape_of(like)), value, dtype=np.int64))


def _float(build: Any, like: Any, value: float) -> Any:
    return _constant(build, np.full([1] * len(build.shape_of(like)), value, dtype=np.float32))


def _constant(build: Any, array: np.ndarray[Any, Any]) -> Any:
    """A constant of rank 0 is one of rank 1 reshaped: the builder has no other."""
    return build.reshape(build.constant(np.atleast_1d(array)), array.shape)


def _fits(ir: Any, value: Any) -> bool:
    """Whether it certainly lies in int32: an index, a count of truths, something narrower."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return False
    if owner.name == "tosa.cast":
        return str(ir.RankedTensorType(owner.operands[0].type).element_type) in (
            "i1",
            "i8",
            "i16",
            "i32",
        )
    return bool(owner.name in ("tosa.reshape", "tosa.transpose") and _fits(ir, owner.operands[0]))


def _wide(ir: Any, build: Any, value: Any) -> Any:
    """The int64 value that was cast to this int32 one, or a constant widened; else ``None``."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    if _is_cast(ir, owner, 64, 32):
        return owner.operands[0]
    if owner.name == "tosa.const":
        attribute = owner.attributes["values"]
        if not isinstance(attribute, ir.DenseElementsAttr):
            return None
        array = np.array(attribute).astype(np.int64)
        shape = list(ir.RankedTensorType(value.type).shape)
        return _constant(build, array.reshape(shape))
    if owner.name == "tosa.reshape" and (inner := _wide(ir, build, owner.operands[0])) is not None:
        return build.reshape(inner, ir.RankedTensorType(value.type).shape)
    return None


def _is_cast(ir: Any, operation: Any, before: int, after: int) -> bool:
    if operation.name != "tosa.cast":
        return False
    kinds = (operation.operands[0].type, operation.results[0].type)
    return all(
        isinstance(kind, ir.RankedTensorType) and str(kind.element_type) == f"i{bits}"
        for kind, bits in zip(kinds, (before, after), strict=True)
    )


def _walk(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _walk(inner.operation)
