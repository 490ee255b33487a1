"""What is valid TOSA for IREE: no float64, no cast between int64 and float.

torch-mlir carries Python's floats as float64 constants and casts them down; a few lowerings
compute in float64 in between. The model's own tensors are float32, so float32 in between loses
nothing that PyTorch had. A cast between int64 and float goes through int32, which holds every
index and count that a tensor on a Pi can have; values beyond 2^31 in an int64 *input* that is
cast to float would not survive, so inputs are left to the caller to range (documented).
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["narrow_types"]


def narrow_types(module: Any) -> int:
    """Rewrites the TOSA module in place; returns how many values changed their type."""
    from torch_mlir import ir

    with module.context, ir.Location.unknown():
        f32, f64 = ir.F32Type.get(), ir.F64Type.get()
        i32, i64 = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(64)
        changed = 0
        for operation in list(_walk(module.operation)):
            changed += _narrow_f64(ir, operation, f32, f64)
        for operation in list(_walk(module.operation)):
            if operation.name == "tosa.cast":
                changed += _split_cast(ir, operation, i32, i64)
        return changed


def _walk(operation: Any) -> Any:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _walk(inner.operation)


def _narrow_f64(ir: Any, operation: Any, f32: Any, f64: Any) -> int:
    changed = 0
    if operation.name in ("tosa.const", "arith.constant"):
        key = "values" if operation.name == "tosa.const" else "value"
        attribute = operation.attributes[key]
        if isinstance(attribute.type, ir.ShapedType) and attribute.type.element_type == f64:
            kind = ir.RankedTensorType.get(attribute.type.shape, f32)
            if attribute.is_splat:
                value = ir.FloatAttr(attribute.get_splat_value()).value
                new = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(f32, _clip(value)))
            else:
                array = np.array(attribute).astype(np.float32)
                new = ir.DenseElementsAttr.get(
                    np.ascontiguousarray(array), type=f32, shape=attribute.type.shape
                )
            operation.attributes[key] = new
    for result in operation.results:
        kind = result.type
        if isinstance(kind, ir.RankedTensorType) and kind.element_type == f64:
            result.set_type(ir.RankedTensorType.get(kind.shape, f32))
            changed += 1
    return changed


def _clip(value: float) -> float:
    limit = float(np.finfo(np.float32).max)
    return value if not np.isfinite(value) else min(max(value, -limit), limit)


def _split_cast(ir: Any, operation: Any, i32: Any, i64: Any) -> int:
    source, result = operation.operands[0], operation.results[0]
    if not isinstance(source.type, ir.RankedTensorType):
        return 0
    before, after = source.type.element_type, result.type.element_type
    floats = (ir.F32Type, ir.F16Type, ir.BF16Type)
    if not (
        (before == i64 and isinstance(after, floats))
        or (after == i64 and isinstance(before, floats))
    ):
        return 0
    middle = ir.RankedTensorType.get(result.type.shape, i32)
    with ir.InsertionPoint(operation), operation.location:
        first = ir.Operation.create("tosa.cast", results=[middle], operands=[source])
    operation.operands[0] = first.results[0]
    return 1
